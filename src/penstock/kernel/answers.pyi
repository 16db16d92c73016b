from penstock.kernel.hub import Hub
from penstock.kernel.ingest import Ingest
from penstock.kernel.sublist import Sublist

def settle(hub: Hub, ingest: Ingest, sublist: Sublist, clients_max: int = ...) -> int: ...
