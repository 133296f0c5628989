"""What drafting did on this machine, round by round: written down, added up, reported. Nothing of it leaves the machine."""
