"""A JetStream stream: its configuration, headers, dedupe window and the rules of a publish.

Nothing here touches a disk or a clock: time comes in as an argument, the store is above this layer's rules.
"""

from penstock.base.duration import (
    duration_ns,
    format_duration,
    format_time,
    parse_duration,
    parse_go_duration,
    parse_time,
)
from penstock.store.write.dedupe import DedupeWindow
from penstock.stream.block_sizes import block_size
from penstock.stream.config import (
    ConsumerLimits,
    Placement,
    Republish,
    StreamConfig,
    SubjectTransformConfig,
    make_config,
)
from penstock.stream.config_json import decode_config, decode_request, encode_config, to_dict
from penstock.stream.config_rules import check_create, check_overlap, check_update, same, validate
from penstock.stream.rules import PublishView, Verdict, judge
from penstock.stream.transform import SubjectTransform
from penstock.wire.headers import Headers

__all__ = [
    "ConsumerLimits",
    "DedupeWindow",
    "Headers",
    "Placement",
    "PublishView",
    "Republish",
    "StreamConfig",
    "SubjectTransform",
    "SubjectTransformConfig",
    "Verdict",
    "block_size",
    "check_create",
    "check_overlap",
    "check_update",
    "decode_config",
    "decode_request",
    "duration_ns",
    "encode_config",
    "format_duration",
    "format_time",
    "judge",
    "make_config",
    "parse_duration",
    "parse_go_duration",
    "parse_time",
    "same",
    "to_dict",
    "validate",
]
