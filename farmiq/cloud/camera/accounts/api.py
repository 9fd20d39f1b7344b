"""The routes of cameras for people and programs, under /api/v1/camera."""

from dataclasses import dataclass

from fastapi import FastAPI

from farmiq.cloud.camera.accounts.days import Days
from farmiq.cloud.camera.accounts.figures import Figures
from farmiq.cloud.camera.accounts.messages import Messages
from farmiq.cloud.camera.accounts.people import People
from farmiq.cloud.camera.accounts.registering import Registering
from farmiq.cloud.camera.accounts.schedules import Schedules
from farmiq.cloud.identity.desk import Desk
from farmiq.plumbing import db
from farmiq.plumbing.gallery import Gallery

ROOT = "/api/v1/camera"


@dataclass
class Api:
    pool: db.Pool
    desk: Desk
    gallery: Gallery | None = None

    def add_to(self, app: FastAPI) -> None:
        people = People(self.pool, self.desk)
        parts = (
            Registering(people), Days(people, self.gallery), Schedules(people), Figures(people),
            Messages(people),
        )  # fmt: skip
        for part in parts:
            part.add_to(app, ROOT)
