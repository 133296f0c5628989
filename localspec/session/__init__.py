"""What `run` and the chat share: a saved conversation, attachments, compaction, approval of calls, export. Knows no engine and no screen."""
