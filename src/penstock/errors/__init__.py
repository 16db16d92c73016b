"""PenstockError: every error we raise on purpose, grouped by who is told. Import them all from here.

base.py       UsageError: the command line prints it · ProtocolError: the client receives -ERR
api.py        ApiError: the caller gets code, err_code and description as JSON
jetstream.py    its subclasses, generated from the table tools/api_errors.txt
store.py      StoreError: the operator is told, and the stream accepts no more writes
                CorruptBlock: "000007.blk at byte 4096: checksum differs": the thing, the place, the reason
library.py    ReadError: a read found no message · PullRefused: a pull request gets a status, such as
              "409 Consumer is push based" · PublishRefused: some messages of a batch were refused
buckets.py    BucketError: a key or an object cannot be read, stored or given this name
"""

from penstock.errors.api import *  # noqa: F403
from penstock.errors.base import *  # noqa: F403
from penstock.errors.buckets import *  # noqa: F403
from penstock.errors.go_quote import *  # noqa: F403
from penstock.errors.jetstream import *  # noqa: F403
from penstock.errors.library import *  # noqa: F403
from penstock.errors.store import *  # noqa: F403

for _error in list(vars().values()):
    if isinstance(_error, type):
        _error.__module__ = __name__  # tracebacks and pickles name the module to import it from
del _error
