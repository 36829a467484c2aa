"""Steps that do not go through: what is said, and that nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from hloscope.capture import CaptureRequest, capture, parse_source, worker
from hloscope.errors import CaptureError, HloscopeError, UsageError


def failure(text, **options):
    with pytest.raises(HloscopeError) as caught:
        capture(CaptureRequest(parse_source(text), use_cache=False, **options))
    return caught.value


def wait_for(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_an_error_on_import_keeps_the_users_traceback_and_leaves_ours_out(write_file):
    write_file("helper.py", "def broken():\n    return 1 / 0\n")
    path = write_file("raises.py", "import helper\nhelper.broken()\n")
    error = failure(f"{path}:step")
    assert isinstance(error, CaptureError)
    assert error.phase == "import"
    assert "ZeroDivisionError" in error.detail
    assert "raises.py" in error.detail
    assert "helper.py" in error.detail
    assert "hloscope" not in error.detail
    assert "importlib" not in error.detail


def test_a_syntax_error_shows_the_line(write_file):
    path = write_file("syntax.py", "x = (1,\ny = = 2\n")
    error = failure(f"{path}:step")
    assert error.phase == "import"
    assert "SyntaxError" in error.detail
    assert "syntax.py" in error.detail


def test_a_file_that_exits_is_an_error_and_not_an_end(write_file):
    path = write_file("exits.py", "import sys\nsys.exit('usage: exits.py DATA')\n")
    error = failure(f"{path}:step")
    assert error.phase == "import"
    assert "usage: exits.py DATA" in error.detail


def test_an_error_while_tracing_shows_the_users_frames_alone(write_file):
    path = write_file(
        "traces.py",
        """
        import jax, jax.numpy as jnp

        def inner(x):
            return x @ jnp.ones((3, 3))

        @jax.jit
        def fn(x):
            return inner(x)

        pair = (fn, (jnp.ones((4, 4)),))
        """,
    )
    error = failure(f"{path}:pair")
    assert error.phase == "trace"
    assert "in inner" in error.detail
    assert "TypeError" in error.detail
    assert "/jax/" not in error.detail
    assert "hloscope" not in error.detail


def test_what_led_to_an_error_is_filtered_too(write_file):
    path = write_file(
        "chained.py",
        """
        import jax, jax.numpy as jnp

        def fn(x):
            try:
                return x @ jnp.ones((3, 3))
            except TypeError as error:
                raise RuntimeError("no such shape") from error

        pair = (fn, (jnp.ones((4, 4)),))
        """,
    )
    error = failure(f"{path}:pair")
    assert "no such shape" in error.detail
    assert "TypeError" in error.detail
    assert "/jax/" not in error.detail


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("step = 3", "an int"),
        ("step = (1, 2, 3)", "a tuple of 3"),
        ("def step(state, batch):\n    return state", "(state, batch)"),
        ("def step():\n    return None", "a NoneType"),
        ("other = 1", "nothing called 'step'"),
    ],
)
def test_what_is_no_step_is_told_what_would_be(write_file, body, said):
    path = write_file("odd.py", body)
    error = failure(f"{path}:step")
    assert isinstance(error, UsageError)
    assert said.replace("an int", "int") in error.message
    assert "Step" in error.hint


def test_the_steps_that_a_file_has_are_named(write_file):
    path = write_file("named.py", "from hloscope.capture import Step\ntrain = Step(print)\n")
    assert "train" in failure(f"{path}:step").hint


@pytest.mark.parametrize("source", ["no/such/file.py:step", "no_such_package.module:step"])
def test_a_source_that_is_not_there_is_said_so(source):
    error = failure(source)
    assert isinstance(error, UsageError)
    assert "no such file" in error.message or "no module" in error.message


def test_a_module_that_fails_inside_is_not_called_missing(write_file, tmp_path, monkeypatch):
    write_file("outer.py", "import not_installed_anywhere\n")
    monkeypatch.chdir(tmp_path)
    error = failure("outer:step")
    assert isinstance(error, CaptureError)
    assert "not_installed_anywhere" in error.detail


def test_a_role_for_an_argument_that_is_not_there_is_refused(write_file):
    path = write_file(
        "roles.py",
        """
        import jax.numpy as jnp
        from hloscope.capture import Step
        from hloscope.ir.signature import Role
        step = Step(lambda state: state, (jnp.ones(3),), roles={"params": Role.STATE})
        """,
    )
    error = failure(f"{path}:step")
    assert isinstance(error, UsageError)
    assert "'params'" in error.message
    assert "state" in error.hint


def test_donation_beside_a_jitted_function_is_refused(write_file):
    path = write_file(
        "twice.py",
        """
        import jax, jax.numpy as jnp
        from hloscope.capture import Step
        step = Step(jax.jit(lambda s: s + 1), (jnp.ones(3),), donate=(0,))
        """,
    )
    assert "jitted already" in failure(f"{path}:step").message


@pytest.mark.parametrize(
    ("name", "body", "phase"),
    [
        ("import", "import os\nprint('last words', flush=True)\nos.abort()\n", "import"),
        (
            "trace",
            "import os, jax.numpy as jnp\n"
            "def fn(x):\n    print('last words', flush=True)\n    os.abort()\n"
            "step = (fn, (jnp.ones(3),))\n",
            "trace",
        ),
        (
            "compile",  # as XLA does it, on standard error
            "import os, jax, jax.numpy as jnp\n"
            "def give_up(*args, **kwargs):\n    os.write(2, b'last words\\n')\n    os.abort()\n"
            "jax.stages.Lowered.compile = give_up\n"
            "step = (lambda x: x * 2, (jnp.ones(3),))\n",
            "compile",
        ),
    ],
)
def test_a_crash_names_its_phase_and_shows_the_last_lines(write_file, name, body, phase):
    path = write_file(f"aborts_in_{name}.py", body)
    error = failure(f"{path}:step")
    assert isinstance(error, CaptureError)
    assert error.phase == phase
    assert "SIGABRT" in error.message
    assert "last words" in error.detail


def test_a_silent_exit_is_not_taken_for_success(write_file):
    path = write_file("leaves.py", "import os\nos._exit(0)\n")
    error = failure(f"{path}:step")
    assert "exit code 0" in error.message


def test_a_flood_of_output_is_kept_to_its_end(write_file):
    path = write_file(
        "floods.py",
        """
        import os, sys
        for n in range(200000):
            print("line", n)
        sys.stdout.flush()
        os.abort()
        """,
    )
    error = failure(f"{path}:step")
    assert "line 199999" in error.detail
    assert len(error.detail) < 10_000


def test_a_capture_that_takes_too_long_is_ended_with_all_that_it_started(
    write_file, tmp_path, no_such_process
):
    path = write_file(
        "sleeps.py",
        f"""
        import os, subprocess, sys, time
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}}\\n")
        time.sleep(600)
        """,
    )
    error = failure(f"{path}:step", timeout=6)
    assert isinstance(error, CaptureError)
    assert error.phase == "import"
    assert "6 s were allowed" in error.message
    assert "--timeout" in error.hint
    worker, child = map(int, (tmp_path / "pids").read_text().split())
    assert wait_for(lambda: no_such_process(worker) and no_such_process(child))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_the_worker_ends_with_its_parent(write_file, tmp_path, no_such_process, sent):
    pid_file = tmp_path / "pid"
    path = write_file(
        "waits.py",
        f"""
        import os, time
        open({str(pid_file)!r}, "w").write(f"{{os.getpid()}}\\n")
        time.sleep(600)
        """,
    )
    code = (
        # Whoever starts the tests in the background hands them an ignored SIGINT.
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from hloscope.capture import *\n"
        f"capture(CaptureRequest(parse_source({str(path) + ':step'!r}), use_cache=False))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert wait_for(lambda: pid_file.exists() and pid_file.read_text().endswith("\n"))
        worker = int(pid_file.read_text())
        assert not no_such_process(worker)
        os.kill(parent.pid, sent)
        _, stderr = parent.communicate(timeout=30)
        assert wait_for(lambda: no_such_process(worker))
        if sent == signal.SIGINT:
            assert "KeyboardInterrupt" in stderr
    finally:
        parent.kill()
        parent.wait()


@pytest.mark.parametrize(("chip", "hinted"), [("h100", True), ("v5e", False), ("cpu", False)])
def test_only_a_gpu_misses_the_library_of_cudnn(chip, hinted):
    error = worker._of_user(RuntimeError("cuDNN is not detected."), "trace", chip)
    assert (error.hint is not None) is hinted
