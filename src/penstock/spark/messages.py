"""messages: map a DataFrame's rows to messages by expressions, ready to be written to a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def messages(
    frame: DataFrame,
    *,
    subject: str | Column,
    payload: str | Column = "to_json(struct(*))",
    headers: str | Column | None = None,
    time: str | Column | None = None,
) -> DataFrame:
    """The columns `subject` and `payload`, and optionally `headers` and `time`; each is a column or an SQL expression.

        orders = messages(df, subject="concat('orders.', region, '.', id)", headers="map('Nats-Msg-Id', id)")
        orders.write.format("penstock").option("path", "data").option("stream", "ORDERS").mode("append").save()

    `time` is written with `.option("timeColumn", "time")`.
    """
    from pyspark.sql import functions as F

    def column(given: str | Column, name: str) -> Column:
        return (F.expr(given) if isinstance(given, str) else given).alias(name)

    wanted = {"subject": subject, "payload": payload, "headers": headers, "time": time}
    return frame.select(*(column(given, name) for name, given in wanted.items() if given is not None))
