from penstock.broker.routing.router import Router
from penstock.broker.routing.sublist import Sublist
from penstock.broker.streams.ingest import Ingest

def settle(router: Router, ingest: Ingest, sublist: Sublist, clients_max: int = ...) -> int: ...
