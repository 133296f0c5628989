"""What is loaded, how large, and with which drafter: facts are gathered, and one pure function decides."""
