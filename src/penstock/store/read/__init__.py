"""The way out: messages by sequence, by filter and in order; views for readers in other processes."""
