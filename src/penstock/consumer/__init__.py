"""A JetStream consumer: which messages were delivered and acknowledged. Its configuration and rules, pull requests, ack
subjects and payloads.

Nothing here touches a disk, a socket or a clock: time is passed in as an argument.
"""
