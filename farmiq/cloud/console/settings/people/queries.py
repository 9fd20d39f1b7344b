"""SQL of people, with the person's rights: functions of the database check who may what."""

from uuid import UUID

from farmiq.cloud.console.settings.people.view import Person
from farmiq.plumbing import db

MAX_PEOPLE = 1000


async def people(connection: db.Connection) -> list[Person]:
    return await db.fetch_as(
        connection,
        Person,
        """
        select u.user_id, u.email, m.role, u.is_super_admin, u.created_at, u.must_change_password,
          f.confirmed_at is not null as has_second_factor
        from users u
        left join second_factors f on f.user_id = u.user_id
        left join memberships m on m.user_id = u.user_id and m.company_id = u.company_id
        order by u.email limit %s
        """,
        (MAX_PEOPLE,),
    )


async def find(connection: db.Connection, user_id: UUID) -> Person | None:
    return next((person for person in await people(connection) if person.user_id == user_id), None)


async def add(connection: db.Connection, email: str, role: str, password_hash: str) -> None:
    await connection.execute("select fn_add_person(%s, %s, %s)", (email, role, password_hash))


async def change_role(connection: db.Connection, user_id: UUID, role: str) -> None:
    await connection.execute("select fn_change_person_role(%s, %s)", (user_id, role))


async def reset_password(connection: db.Connection, user_id: UUID, password_hash: str) -> None:
    await connection.execute("select fn_reset_person_password(%s, %s)", (user_id, password_hash))


async def reset_second_factor(connection: db.Connection, user_id: UUID) -> None:
    await connection.execute("select fn_reset_person_second_factor(%s)", (user_id,))


async def remove(connection: db.Connection, user_id: UUID) -> None:
    await connection.execute("select fn_remove_person(%s)", (user_id,))
