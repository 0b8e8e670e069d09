def case_K1_slots(bed):
    pass
