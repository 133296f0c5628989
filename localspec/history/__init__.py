"""Conversations that outlive the program: a tree of messages in SQLite, search, export."""
