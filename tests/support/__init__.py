"""What tests of several folders share: servers and clients to test with, disks that fail, cases."""
