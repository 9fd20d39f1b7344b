"""Settings of the commands that own the databases and the bus."""

from pydantic import Field, SecretStr

from farmiq.config.settings import Settings


class AdminSettings(Settings):
    """For `farmiq migrate`, `trace` and `topology`: the owners of the databases and of the bus."""

    edge_db_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_EDGE_DB_ADMIN_URL",
        description="PostgreSQL of the edge, as the owner of its tables",
    )
    cloud_db_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_CLOUD_DB_ADMIN_URL",
        description="PostgreSQL of the cloud, as the owner of its tables",
    )
    rabbitmq_api_url: SecretStr | None = Field(
        None,
        alias="FARMIQ_RABBITMQ_API_URL",
        description="management API of cloud-rabbitmq, as an administrator, for farmiq topology",
    )
