def V1_first(bed):
    pass


def V2_second(bed):
    pass
