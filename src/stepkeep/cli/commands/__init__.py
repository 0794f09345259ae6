"""The commands, one file each (or one per family); every heavy import waits until its command is called."""
