"""Web push: a message that only one browser can read (RFC 8291, RFC 8292)."""

import base64
import os
from datetime import datetime, timedelta
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from joserfc import jwt
from joserfc.jwk import ECKey

# One record of what every push service accepts (4,096 bytes with header and tag).
MAX_CONTENT = 3_900
_RECORD_BYTES = 4_096
_AUTH_BYTES = 16
_Key = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class Keys(msgspec.Struct, frozen=True):
    p256dh: _Key
    auth: _Key


class Subscription(msgspec.Struct, frozen=True):
    """What `PushManager.subscribe()` gives in a browser, as JSON."""

    endpoint: Annotated[str, msgspec.Meta(min_length=9, max_length=1024)]
    keys: Keys


def read(text: str) -> Subscription:
    """Raises ValueError if this is not a subscription that a message can be encrypted for."""
    try:
        subscription = msgspec.json.decode(text, type=Subscription)
        _receiver(subscription)
    except (ValueError, InvalidKey):
        raise ValueError("is not the JSON of a browser's push subscription") from None
    return subscription


def new_private_key() -> str:
    """A fresh key of a sender, in base64url; browsers are given `public_key` of it."""
    number = ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value
    return _encoded(number.to_bytes(32))


def public_key(private: str) -> str:
    """The applicationServerKey of `PushManager.subscribe()`."""
    return _encoded(_point(_private(private).public_key()))


def authorization(private: str, endpoint: str, *, contact: str, now: datetime) -> str:
    """The header Authorization that shows who sends; `contact` is a mailto: or https: address."""
    parts = urlsplit(endpoint)
    key = ECKey.import_key(
        _private(private).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int((now + timedelta(hours=12)).timestamp()),
        "sub": contact,
    }
    token = jwt.encode({"typ": "JWT", "alg": "ES256"}, claims, key, algorithms=["ES256"])
    return f"vapid t={token}, k={public_key(private)}"


def encrypt(content: bytes, subscription: Subscription) -> bytes:
    """The body of the request, Content-Encoding aes128gcm, in one record."""
    if len(content) > MAX_CONTENT:
        raise ValueError(f"a push message has at most {MAX_CONTENT} bytes")
    receiver, auth = _receiver(subscription)
    ours = ec.generate_private_key(ec.SECP256R1())
    salt = os.urandom(16)
    shared = ours.exchange(ec.ECDH(), receiver)
    info = b"WebPush: info\0" + _point(receiver) + _point(ours.public_key())
    secret = _derive(shared, salt=auth, info=info, length=32)
    key = _derive(secret, salt=salt, info=b"Content-Encoding: aes128gcm\0", length=16)
    nonce = _derive(secret, salt=salt, info=b"Content-Encoding: nonce\0", length=12)
    point = _point(ours.public_key())
    header = salt + _RECORD_BYTES.to_bytes(4) + len(point).to_bytes(1) + point
    return header + AESGCM(key).encrypt(nonce, content + b"\x02", None)


def _receiver(subscription: Subscription) -> tuple[ec.EllipticCurvePublicKey, bytes]:
    auth = _decoded(subscription.keys.auth)
    if len(auth) != _AUTH_BYTES:
        raise ValueError("auth has to be 16 bytes")
    point = _decoded(subscription.keys.p256dh)
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point), auth


def _private(text: str) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(int.from_bytes(_decoded(text)), ec.SECP256R1())


def _point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
    )


def _derive(secret: bytes, *, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=hashes.SHA256(), length=length, salt=salt, info=info).derive(secret)


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
