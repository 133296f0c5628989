from localspec.models.gguf_encoding import GGML_TYPES


def test_rows_are_whole_blocks() -> None:
    q4_k = GGML_TYPES[12]
    assert q4_k.name == "Q4_K"
    assert q4_k.row_bytes(512) == 2 * 144
    assert q4_k.row_bytes(0) == 0
    assert q4_k.row_bytes(500) is None


def test_plain_numbers_take_their_width() -> None:
    widths = {GGML_TYPES[kind].name: GGML_TYPES[kind].row_bytes(3) for kind in (0, 1, 24, 28, 30)}
    assert widths == {"F32": 12, "F16": 6, "I8": 3, "F64": 24, "BF16": 6}
