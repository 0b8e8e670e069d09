/* Never run. BAD-FILE */
