/* Nobody builds this. BAD-FILE */
