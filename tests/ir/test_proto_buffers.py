"""The buffer assignment of a real dump against what the compiler says of the same program."""

import pytest

from hloscope.ir.proto import read_proto


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    folder = tmp_path_factory.mktemp("dump")

    def step(state, batch):
        hidden = jnp.tanh(batch @ state)
        return state - hidden.T @ hidden, hidden.sum()

    arguments = (jnp.ones((64, 64)), jnp.ones((32, 64)))
    lowered = jax.jit(step, donate_argnums=0).lower(*arguments)
    executable = lowered.compile(
        compiler_options={"xla_dump_to": str(folder), "xla_dump_hlo_as_proto": True}
    )
    (path,) = folder.glob("*after_optimizations.hlo.pb")
    return executable, read_proto(path.read_bytes(), file=path.name)


def test_temporaries_and_arguments_add_up_to_what_the_compiler_reports(compiled):
    executable, module = compiled
    memory = executable.memory_analysis()
    allocations = module.buffer_assignment.allocations

    temporary = sum(a.size for a in allocations if a.is_temporary)
    arguments = sum(a.size for a in allocations if a.parameter is not None)
    assert temporary == memory.temp_size_in_bytes
    assert arguments == memory.argument_size_in_bytes == 4 * (64 * 64 + 32 * 64)


def test_the_donated_parameter_holds_a_result_afterwards(compiled):
    _, module = compiled
    by_parameter = {
        a.parameter: a for a in module.buffer_assignment.allocations if a.parameter is not None
    }

    assert by_parameter[0].is_output
    assert not by_parameter[1].is_output
    assert module.input_output_alias[0].parameter == 0


def test_every_buffer_is_defined_by_an_instruction_of_its_size(compiled):
    _, module = compiled
    assignment = module.buffer_assignment

    assert assignment.buffers
    for buffer in assignment.buffers.values():
        assert buffer.instruction is not None
        shape = buffer.instruction.shape
        for index in buffer.shape_index:
            shape = shape.elements[index]
        if not shape.is_tuple:
            assert buffer.size == shape.bytes


def test_each_place_lies_within_its_allocation(compiled):
    _, module = compiled
    assignment = module.buffer_assignment

    for allocation in assignment.allocations:
        for place in allocation.assigned:
            assert place.buffer in assignment.buffers
            assert place.offset + place.size <= allocation.size


def test_a_bare_module_has_no_buffer_assignment(compiled):
    executable, _ = compiled
    (module,) = executable.runtime_executable().hlo_modules()

    assert read_proto(module.as_serialized_hlo_module_proto()).buffer_assignment is None
