"""A JetStream consumer: who has seen what. Its configuration and rules, pull requests, ack subjects and payloads.

Nothing here touches a disk, a socket or a clock: time comes in as an argument.
"""
