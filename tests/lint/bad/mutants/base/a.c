/* Two lines alike. */
	if (a || b)
		return;
	if (a || b)
		return 1;
