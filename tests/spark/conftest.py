"""One Spark session for all the tests of a worker: it takes ten seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from penstock.spark import session

    found = session(
        **{
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": 2,
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
    )
    yield found
    found.stop()
