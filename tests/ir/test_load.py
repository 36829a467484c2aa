"""From paths, folders and stdin to modules, and what is said of everything else."""

import gzip
import io
import pickle
import zipfile
from pathlib import Path

import pytest

from hloscope.errors import HloscopeError, InputError, ParseError, UsageError
from hloscope.ir import sniff
from hloscope.ir.load import list_dump, load_module, load_modules
from hloscope.ir.proto.schema import message_class


def hlo(name="step", size=4):
    return (
        f"HloModule {name}\n\nENTRY %main (x: f32[{size}]) -> f32[{size}] {{\n"
        f"  %x = f32[{size}]{{0}} parameter(0)\n"
        f"  ROOT %y = f32[{size}]{{0}} negate(%x)\n}}\n"
    )


def proto(name="step"):
    message = message_class("HloModuleProto")(name=name, entry_computation_id=1)
    computation = message.computations.add(name="main", id=1, root_id=2)
    computation.instructions.add(name="x", opcode="parameter", id=1).shape.element_type = 11
    negate = computation.instructions.add(name="y", opcode="negate", id=2, operand_ids=[1])
    negate.shape.element_type = 11
    return message


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


def refusal(source, kind=InputError, **options):
    with pytest.raises(kind) as caught:
        _ = [one.module for one in load_modules(source, **options)]
    return caught.value


WRAPPED = {
    "text": lambda: hlo().encode(),
    "text with a byte order mark": lambda: b"\xef\xbb\xbf" + hlo().encode(),
    "HloModuleProto": lambda: proto().SerializeToString(),
    "HloProto": lambda: message_class("HloProto")(hlo_module=proto()).SerializeToString(),
    "text proto": lambda: b"# RUN: tool %s\n" + str(proto()).encode(),
    "text proto of HloProto": lambda: str(message_class("HloProto")(hlo_module=proto())).encode(),
}


@pytest.mark.parametrize("name", ["dump.hlo", "dump.txt", "dump.pb", "dump", "dump.gz"])
@pytest.mark.parametrize("form", WRAPPED)
@pytest.mark.parametrize("packed", [False, True])
def test_content_counts_and_the_suffix_does_not(write, form, name, packed):
    content = WRAPPED[form]()
    path = write(name, gzip.compress(content) if packed else content)

    (one,) = load_modules(path)

    assert (one.name, one.origin, one.stage) == ("step", name, "")
    assert [i.opcode for i in one.module.entry.instructions] == ["parameter", "negate"]


def test_stdin_is_read_for_a_dash():
    (one,) = load_modules("-", stdin=io.BytesIO(gzip.compress(hlo().encode())))

    assert (one.name, one.origin) == ("step", "<stdin>")


def test_a_terminal_as_stdin_is_refused_instead_of_waited_for():
    class Terminal(io.BytesIO):
        def isatty(self):
            return True

    error = refusal("-", stdin=Terminal())
    assert "nothing is piped in" in error.message


# -- several modules -----------------------------------------------------------


def test_a_file_of_several_modules_needs_a_name(write):
    path = write("two.hlo", hlo("step") + "\n" + hlo("other"))

    assert [one.name for one in load_modules(path)] == ["step", "other"]
    assert load_module(path, name="other").module.name == "other"
    with pytest.raises(UsageError, match="holds 2 modules") as caught:
        load_module(path)
    assert "step" in caught.value.detail
    assert "other" in caught.value.detail


def test_modules_of_one_name_are_told_apart_by_number(write):
    path = write("two.hlo", hlo("main", 2) + "\n" + hlo("main", 3))

    assert load_module(path, name="main#2").module.entry.root.shape.dimensions == (3,)
    with pytest.raises(UsageError, match="holds 2 modules called 'main'") as caught:
        load_module(path, name="main")
    assert "main#1" in caught.value.hint


def test_an_unknown_name_gets_the_nearest_ones(write):
    path = write("two.hlo", hlo("jit_step") + "\n" + hlo("jit_loss"))

    error = refusal(path, UsageError, name="jit_stp")
    assert "jit_step" in error.hint
    assert path in error.place


# -- dump folders --------------------------------------------------------------

NAMES = [
    "module_0001.jit_step.before_optimizations.txt",
    "module_0001.jit_step.cpu_after_optimizations-buffer-assignment.txt",
    "module_0001.jit_step.cpu_after_optimizations.txt",
    "module_0001.jit_step.cpu_after_optimizations-memory-usage-report.txt",
    "module_0001.jit_step.0003.simplification.after_algsimp.before_dce.txt",
    "module_0003.jit_loss.sm_9.0_gpu_after_optimizations.txt",
    "module_0003.jit_loss.ir-with-opt.ll",
    "module_0004.SyncTensorsGraph.23.tpu_comp_env_after_optimizations.txt",
    "module_0005.jit_step.before_optimizations.txt",
    "module_0005.jit_step.debug_options",
    "1690000000000.module_0007.jit_eval.after_optimizations.txt.gz",
]


@pytest.fixture
def dump(tmp_path):
    for name in NAMES:
        number = next(part for part in name.split(".") if part.startswith("module_"))
        content = hlo(name.split(".")[name.split(".").index(number) + 1]).encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (tmp_path / "module_0001.jit_step").mkdir()
    return tmp_path


def test_a_dump_lists_one_row_a_module_and_prefers_optimized_text(dump):
    rows = [(one.label, one.name, one.origin, one.stage) for one in list_dump(str(dump))]

    assert rows == [
        ("module_0001.jit_step", "jit_step", NAMES[2], "after optimizations"),
        ("module_0003.jit_loss", "jit_loss", NAMES[5], "after optimizations"),
        ("module_0004.SyncTensorsGraph.23", "SyncTensorsGraph.23", NAMES[7], "after optimizations"),
        ("module_0005.jit_step", "jit_step", NAMES[8], "before optimizations"),
        ("module_0007.jit_eval", "jit_eval", NAMES[10], "after optimizations"),
    ]


def test_a_module_of_a_dump_knows_itself_before_optimization(tmp_path):
    name = "module_0001.jit_step"
    (tmp_path / f"{name}.cpu_after_optimizations.txt").write_text(hlo("after"))
    (module,) = list_dump(str(tmp_path))
    assert module.read_lowered is None
    (tmp_path / f"{name}.before_optimizations.txt").write_text(hlo("text"))
    (module,) = list_dump(str(tmp_path))
    assert (module.module.name, module.read_lowered().name) == ("after", "text")
    # Its protobuf holds the elements of large constants, which text leaves out.
    data = proto("whole").SerializeToString()
    (tmp_path / f"{name}.before_optimizations.hlo.pb").write_bytes(data)
    (module,) = list_dump(str(tmp_path))
    assert module.read_lowered().name == "whole"
    # Where only the module before optimization is there, it is what is looked at.
    (tmp_path / f"{name}.cpu_after_optimizations.txt").unlink()
    (module,) = list_dump(str(tmp_path))
    assert (module.module.name, module.read_lowered) == ("text", None)


def test_listing_a_dump_reads_no_module(dump):
    (dump / NAMES[2]).write_text("no HLO at all")

    rows = list_dump(str(dump))

    assert rows[0].size == len("no HLO at all")
    with pytest.raises(ParseError, match="not HLO"):
        _ = next(one for one in rows if one.origin == NAMES[2]).module


def test_the_module_is_chosen_by_name_number_label_or_file(dump):
    for name in ("jit_loss", "module_0003", "module_0003.jit_loss", NAMES[5]):
        assert load_module(str(dump), name=name).module.name == "jit_loss"


def test_a_name_that_two_modules_have_is_not_guessed(dump):
    with pytest.raises(UsageError, match="holds 2 modules called 'jit_step'") as caught:
        load_module(str(dump), name="jit_step")
    assert "module_0001.jit_step" in caught.value.detail
    assert "module_0005.jit_step" in caught.value.detail


def test_a_dump_of_several_modules_and_no_name_lists_them(dump):
    with pytest.raises(UsageError, match="holds 5 modules") as caught:
        load_module(str(dump))
    assert "module_0004.SyncTensorsGraph.23" in caught.value.detail
    assert "--module" in caught.value.hint


def test_a_protobuf_serves_where_a_dump_has_no_text(tmp_path):
    name = "module_0002.step.cpu_after_optimizations.hlo.pb"
    wrapped = message_class("HloProto")(hlo_module=proto("step"))
    (tmp_path / name).write_bytes(wrapped.SerializeToString())
    (tmp_path / "module_0002.step.before_optimizations.txt").write_text(hlo())

    one = load_module(str(tmp_path))

    assert (one.origin, one.stage) == (name, "after optimizations")
    assert one.module.name == "step"


def test_plain_hlo_files_in_a_folder_are_listed_by_the_name_inside(tmp_path):
    (tmp_path / "a.hlo").write_text(hlo("inside"))
    (tmp_path / "b.hlo.pb").write_bytes(proto("named").SerializeToString())
    (tmp_path / "notes.txt").write_text("nothing")

    assert [one.name for one in list_dump(str(tmp_path))] == ["inside", "b"]
    assert load_module(str(tmp_path), name="inside").module.name == "inside"


def test_a_real_dump_reads(tmp_path):
    jax = pytest.importorskip("jax")
    jax.jit(lambda x: x @ x).lower(jax.ShapeDtypeStruct((8, 8), "float32")).compile(
        compiler_options={"xla_dump_to": str(tmp_path), "xla_dump_hlo_as_text": True}
    )

    one = load_module(str(tmp_path), name="jit__lambda")

    assert one.stage == "after optimizations"
    assert one.module.is_scheduled


@pytest.mark.parametrize("files", [[], ["readme.md", "x.ll"]])
def test_a_folder_without_a_dump_says_what_it_holds(tmp_path, files):
    for name in files:
        (tmp_path / name).write_text("x")

    error = refusal(str(tmp_path))

    assert "no HLO dump" in error.message
    assert ("readme.md" if files else "empty") in error.message
    assert "--xla_dump_to" in error.hint


# -- what is no HLO ------------------------------------------------------------


def archive():
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr("manifest.json", "{}")
    return stream.getvalue()


def trace():
    plane = b"\x08\x01\x12\x09/host:CPU"
    return b"\x0a" + bytes([len(plane)]) + plane


FOREIGN = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t\n", "nothing but blanks"),
    "comments": (b"// RUN: tool\n# nothing\n", "nothing but comments"),
    "zip": (archive(), "zip archive"),
    "pickle": (pickle.dumps({"a": 1}), "pickle"),
    "ELF": (b"\x7fELF\x02\x01\x01" + bytes(64), "ELF"),
    "numpy": (b"\x93NUMPY\x01\x00v\x00", "numpy"),
    "MLIR bytecode": (b"ML\xefR\x0dStableHLO", "MLIR bytecode"),
    "MLIR text": (b"module @jit_f attributes {} {\n  func.func public @main() {\n", "MLIR"),
    "zstd": (b"\x28\xb5\x2f\xfd\x04\x00", "zstd"),
    "profiler trace": (trace(), "profiler trace"),
    "mangled bytes": (b"\x0a\x12" + b"\xef\xbf\xbd\x01" * 50, "not UTF-8 was replaced"),
    "junk": (bytes(range(256)) * 4, "is no HloProto"),
    "HTML": (b"<!DOCTYPE html><html></html>", "HTML"),
    "UTF-16": ("HloModule m".encode("utf-16"), "UTF-16"),
    "NUL in text": (hlo().encode() + b"x" * 600 + b"\x00", "NUL byte at offset"),
    "Latin-1 text": (hlo().replace("%y", "%é").encode("latin-1"), "no UTF-8"),
    "text that breaks off": (hlo()[:-3].encode(), "ends"),
    "protobuf that breaks off": (proto().SerializeToString()[:-9], "is no HloProto"),
    "other protobuf": (b"\x0a\x04\x0a\x02\x08\x01", "holds no HLO computation"),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", FOREIGN)
def test_what_is_no_hlo_is_named_with_its_file_and_a_next_step(write, case, packed):
    content, complaint = FOREIGN[case]
    path = write("dump.hlo", gzip.compress(content) if packed else content)

    error = refusal(path)

    assert complaint in error.message
    assert error.place.startswith(path)
    assert error.hint


def test_text_that_is_no_utf8_names_the_line(write):
    error = refusal(write("dump.hlo", hlo().replace("%y", "%é").encode("latin-1")))

    assert "byte 0xe9" in error.message
    assert "line 5" in error.message


@pytest.mark.parametrize("keep", [10, 40, -9, -4, -1])
def test_gzip_that_breaks_off_is_refused(write, keep):
    error = refusal(write("dump.hlo.gz", gzip.compress(hlo().encode() * 9)[:keep]))

    assert "breaks off" in error.message


def test_damaged_gzip_is_refused(write):
    data = bytearray(gzip.compress(hlo().encode() * 9))
    data[30:40] = b"\xff" * 10

    assert "damaged gzip" in refusal(write("dump.hlo.gz", bytes(data))).message


def test_gzip_inside_gzip_is_refused(write):
    data = gzip.compress(gzip.compress(hlo().encode()))

    assert "gzip inside gzip" in refusal(write("dump.hlo.gz", data)).message


def test_several_gzip_streams_in_a_row_are_one_file(write):
    text = hlo().encode()
    data = gzip.compress(text[:30]) + gzip.compress(text[30:]) + b"\x00" * 64

    assert load_module(write("dump.hlo.gz", data)).name == "step"


def test_a_gzip_bomb_stops_at_the_limit(write, monkeypatch):
    monkeypatch.setattr(sniff, "MAX_BYTES", 100_000)
    data = gzip.compress(bytes(5_000_000))

    assert "100000 bytes" in refusal(write("dump.hlo.gz", data)).message


def test_a_file_beyond_the_limit_is_refused(write, monkeypatch):
    monkeypatch.setattr(sniff, "MAX_BYTES", 1000)

    assert "larger than 1000 bytes" in refusal(write("dump.hlo", hlo() * 100)).message


def test_a_missing_file_gets_the_nearest_names(write, tmp_path):
    write("train_step.hlo", hlo())

    error = refusal(str(tmp_path / "train_stp.hlo"))

    assert "no such file" in error.message
    assert "train_step.hlo" in error.hint


def test_a_missing_folder_is_told_from_a_missing_file(tmp_path):
    error = refusal(str(tmp_path / "nowhere" / "deep" / "step.hlo"))

    assert str(tmp_path) in error.hint
    assert "There is no folder" in error.hint


def test_a_file_without_permission_is_refused(write, monkeypatch):
    path = write("dump.hlo", hlo())

    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)

    error = refusal(path)
    assert "permission denied" in error.message
    assert error.place == path


@pytest.mark.parametrize("name", ["a\x00b", "x" * 5000])
def test_names_that_no_file_can_have_are_refused(name):
    assert refusal(name).hint


def test_a_module_is_verified_when_it_is_read(write):
    text = hlo().replace("negate(%x)", "call(%x), to_apply=%nowhere")
    (one,) = load_modules(write("dump.hlo", text))

    with pytest.raises(HloscopeError, match="nowhere"):
        _ = one.module


BAD = ("BROKEN", "TRUNCATED", "NOT_HLO", "MUTATED")


def test_every_recorded_bad_file_is_refused_and_every_other_reads(fixtures_dir):
    refused = {}
    for path in sorted([*fixtures_dir.glob("hlo/*"), *fixtures_dir.glob("xplane/*.pb")]):
        try:
            _ = [one.module for one in load_modules(str(path))]
        except HloscopeError as error:
            refused[path.name] = error
    expected = {
        path.name
        for folder in ("hlo", "xplane")
        for path in (fixtures_dir / folder).iterdir()
        if path.is_file() and (path.name.startswith(BAD) or ".xplane." in path.name)
    }
    assert set(refused) == expected
    for name, error in refused.items():
        assert name in error.place
        assert error.hint


def test_recorded_files_of_several_modules_read_whole(fixtures_dir):
    counts = {
        path.name: len(load_modules(str(path))) for path in (fixtures_dir / "hlo").glob("MULTI*")
    }
    assert counts == {
        "MULTI_async_collectives.hlo": 6,
        "MULTI_gpu_cublaslt_several_modules.hlo": 5,
        "MULTI_stack_frames_with_run_lines.hlo": 3,
    }
