"""What the programs run on: compiled functions, the memory of the machine, and how a run is known again."""
