"""A browser's side of web push: a subscription, and the key that reads messages (RFC 8291)."""

import base64
import json
import os
from dataclasses import dataclass

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


@dataclass(frozen=True)
class PushReceiver:
    endpoint: str
    key: ec.EllipticCurvePrivateKey
    auth: bytes

    @classmethod
    def new(cls, endpoint: str) -> "PushReceiver":
        return cls(endpoint, ec.generate_private_key(ec.SECP256R1()), os.urandom(16))

    def subscription(self) -> str:
        """As `PushManager.subscribe()` gives it."""
        keys = {"p256dh": _text(self._public()), "auth": _text(self.auth)}
        return json.dumps({"endpoint": self.endpoint, "expirationTime": None, "keys": keys})

    def decrypt(self, body: bytes) -> bytes:
        """The message in a body of Content-Encoding aes128gcm; written apart from the sender."""
        salt, length = body[:16], body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        shared = self.key.exchange(ec.ECDH(), point)
        info = b"WebPush: info\x00" + self._public() + sender
        secret = HKDF(hashes.SHA256(), 32, self.auth, info).derive(shared)
        key = HKDF(hashes.SHA256(), 16, salt, b"Content-Encoding: aes128gcm\x00").derive(secret)
        nonce = HKDF(hashes.SHA256(), 12, salt, b"Content-Encoding: nonce\x00").derive(secret)
        return AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\x00").removesuffix(b"\x02")

    def _public(self) -> bytes:
        return self.key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
