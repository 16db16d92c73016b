"""What a stream holds, without the bytes: rows, subjects, summaries, checkpoints."""
