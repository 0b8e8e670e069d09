/* Right: short. The long ones are made by the self-test. */
