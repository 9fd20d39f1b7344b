"""Whole pages travel compressed to browsers that accept it."""

import httpx2
import pytest
from fastapi import FastAPI, Request, Response

from farmiq.plumbing import http
from farmiq.ui import look


async def problem(request: Request) -> Response:
    return look.problem_page(request, http.HttpError(404, "Not Found"))


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, br", "gzip"), ("identity", None)])
async def test_page_is_compressed_where_the_browser_accepts_it(
    accepted: str, encoding: str | None
) -> None:
    app = FastAPI()
    look.add_pages(app, ("/page", problem, "GET"))
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app), base_url="http://console"
    ) as client:
        answer = await client.get("/page", headers={"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == encoding
    assert answer.headers["vary"] == "Accept-Encoding"
    assert "There is no such page" in answer.text
