"""Setup: finds out which GPU this machine has, and gets a build of llama.cpp for it that works before it is used."""
