"""Images over HTTP at the edge: lists, details, pictures without what they tell of a place."""

import io

import pytest
from PIL import Image

from farmiq.edge.media.handlers import ImageChecker
from farmiq.plumbing import ids
from farmiq.plumbing.storage import objects
from tests.integration.edge.media.conftest import Edge, jpeg, picture, served


def placed() -> Image.Exif:
    exif = Image.Exif()
    exif.get_ifd(0x8825)[2] = (52.0, 30.0, 0.0)
    exif[0x010F] = "a telling camera"
    exif[0x0112] = 6
    return exif


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


@pytest.mark.req("DB-17")
@pytest.mark.parametrize(
    ("form", "kind"), [("JPEG", "image/jpeg"), ("PNG", "image/png"), ("WEBP", "image/webp")]
)
async def test_what_is_shown_tells_no_place(edge: Edge, form: str, kind: str) -> None:
    data = picture(form, "red", size=(900, 600), exif=placed())
    assert b"a telling camera" in data
    media_id = await edge.store(data, contentType=kind)
    whole = await edge.get(f"/{media_id}")
    assert (whole.status_code, whole.headers["content-type"]) == (200, kind)
    assert whole.headers["x-content-type-options"] == "nosniff"
    assert b"a telling camera" not in whole.content
    assert not opened(whole.content).getexif().get_ifd(0x8825)
    assert opened(whole.content).tobytes() == opened(data).tobytes(), "the very same pixels"
    small = await edge.get(f"/{media_id}/thumbnail")
    assert (small.status_code, small.headers["content-type"]) == (200, "image/jpeg")
    assert max(opened(small.content).size) == 320
    assert not opened(small.content).getexif()
    again = await edge.get(
        f"/{media_id}/thumbnail", headers={"If-None-Match": small.headers["etag"]}
    )
    assert again.status_code == 304
    assert (await edge.bucket.get(edge.column("object_key", media_id))) == data, "kept as it came"


async def test_a_turned_photograph_stays_turned(edge: Edge) -> None:
    media_id = await edge.store(jpeg(size=(60, 40), exif=placed()))
    whole = (await edge.get(f"/{media_id}")).content
    assert opened(whole).getexif()[0x0112] == 6
    assert opened((await edge.get(f"/{media_id}/thumbnail")).content).size == (40, 60)


async def test_images_are_listed_page_by_page(edge: Edge) -> None:
    session = ids.new()
    made = [
        str(await edge.store(jpeg(colour), capturedAt=f"2026-11-1{day}T08:00:00Z", sessionId=of))
        for day, (colour, of) in enumerate([("red", None), ("green", str(session)), ("blue", None)])
    ]
    waiting = (await edge.presigned(jpeg(), capturedAt="2026-11-19T08:00:00Z"))["media_id"]

    async def ls(query: str) -> list[str]:
        answer = await edge.get(f"?{query}")
        assert answer.status_code == 200, answer.text
        return [each["media_id"] for each in answer.json()["images"]]

    assert await ls("") == [waiting, *made[::-1]]
    assert await ls("status=stored") == made[::-1]
    assert await ls(f"session={session}") == [made[1]]
    assert await ls("device=cam-1&tenant=t-cam&station=st-1&from=2026-11-11T00:00:00Z&limit=1") == [
        waiting
    ]
    assert await ls("device=cam-2") == []
    first = (await edge.get("?limit=3")).json()
    assert await ls(f"limit=3&cursor={first['next_cursor']}") == [made[0]]
    for odd in ("limit=0", "session=x", "status=lost", "cursor=!", "from=noon", "colour=red"):
        answer = await edge.get(f"?{odd}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "VALIDATION_ERROR")
    detail = (await edge.get(f"/{made[0]}/detail")).json()
    assert detail["object_key"] == edge.column("object_key", made[0])


async def test_what_is_not_there_is_404_and_strangers_are_401(edge: Edge) -> None:
    waiting = (await edge.presigned(jpeg()))["media_id"]
    for path in (f"/{ids.new()}", "/x", f"/{waiting}", f"/{waiting}/thumbnail", "/presign"):
        assert (await edge.get(path)).status_code == 404, path
    for token in (edge.token, "nothing"):
        edge.key = token
        for path in ("", f"/{waiting}", f"/{waiting}/thumbnail", f"/{waiting}/detail"):
            assert (await edge.get(path)).status_code == 401


async def test_bytes_that_vanished_are_404(edge: Edge) -> None:
    media_id = await edge.store(jpeg())
    await edge.bucket.delete(edge.column("object_key", media_id))
    assert (await edge.get(f"/{media_id}")).status_code == 404


async def test_a_store_that_is_away_is_said_and_costs_nothing(edge: Edge) -> None:
    media_id = await edge.store(jpeg())
    waiting = (await edge.presigned(jpeg("blue")))["media_id"]
    await edge.announce(waiting)
    away = objects.Bucket("http://key:secret@127.0.0.1:9/bucket")
    checker = ImageChecker(edge.settings, edge.pool, away)
    async with served(edge.settings, edge.pool, away, checker) as client:
        edge.client = client
        for path in (f"/{media_id}", f"/{media_id}/thumbnail"):
            answer = await edge.get(path)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        again = await edge.ask(edge.body(jpeg("blue"), mediaId=waiting))
        assert (again.status_code, again.json()["error"]["code"]) == (503, "UNAVAILABLE")
        with pytest.raises(ExceptionGroup):
            await checker.check_due()
    assert edge.status(waiting) == "presigned"
    assert edge.alerts() == set()
    # When the store is back nobody waits for the end of a lease.
    assert await edge.checker.check_due() == 1
