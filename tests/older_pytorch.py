"""What tests ask for and PyTorch 2.11, the oldest version that is accepted, does not have: test -> why.

Such a call breaks the graph, compiles once a size or is an error; its results are eager's. The tests pass from 2.13 on.
"""

OLD = (2, 12)
_AS_NUMBERS = "asks in C++ for symbolic sizes as numbers"
_ALL_OR_NONE = "unpacks saved tensors all together or not at all"
_OF_ONE = "asks whether a batch is one"

MISSING: dict[str, str] = {
    **dict.fromkeys(
        [
            "tests/autograd/test_some_results.py::test_what_is_written_between_matters_to_what_reads_it",
            "tests/autograd/test_some_results.py::test_writes_concern_the_results_that_read_what_was_written",
            "tests/autograd/test_some_results.py::test_a_result_whose_gradient_cannot_do_without_another_is_computed_by_the_program",
        ],
        _ALL_OR_NONE,
    ),
    **dict.fromkeys(
        [
            "tests/capture/test_functional_transforms.py::test_jacobians[jacfwd]",
            "tests/capture/test_functional_transforms.py::test_jacobians[jacrev]",
            *[
                f"tests/capture/test_vmap_table.py::test_one_graph_serves_all_batches[{case}]"
                for case in ("bilinear-map", "bilinear-grad", "index_select-grad", "index_select-grad first")
            ],
            "tests/end_to_end/test_dynamic_programs.py::test_one_graph_for_all_sizes[bilinear]",
            "tests/graph/test_compositions.py::test_arguments_by_name[bilinear]",
            "tests/graph/test_composed_counts.py::test_numbers[bilinear]",
            "tests/end_to_end/test_size_programs.py::test_by_default_and_at_small_sizes[quantile]",
            "tests/end_to_end/test_size_programs.py::test_one_graph_with_gradients[bilinear]",
            "tests/end_to_end/test_size_programs.py::test_one_graph_with_gradients[diagonal]",
            "tests/end_to_end/test_size_programs.py::test_one_graph_with_gradients[pool of volumes]",
            "tests/end_to_end/test_size_programs.py::test_one_graph_with_gradients[quantile]",
            "tests/symbolic/test_programs_without_guards.py::test_shape_without_guards[attention]",
        ],
        _AS_NUMBERS,
    ),
    **dict.fromkeys(
        [
            "tests/exporting/test_constraints.py::test_what_is_said_or_advised_works[attention with padding]",
            "tests/exporting/test_models.py::test_models_in_a_new_process_are_as_eager",
            "tests/exporting/test_sizes_of_one.py::test_copies_of_what_may_be_laid_out_in_order[a layer]",
            "tests/exporting/test_sizes_of_one.py::test_copies_of_what_may_be_laid_out_in_order[a product]",
            *[
                f"tests/exporting/test_sizes_of_one.py::test_masks_of_attention_ask_for_no_batch[{mask}]"
                for mask in ("1111", "b1ll", "bhll", "111l", "1hl1")
            ],
            "tests/exporting/test_standalone.py::test_a_library_computes_what_the_model_does",
            "tests/exporting/test_standalone.py::test_eight_threads_under_a_sanitizer[address]",
            "tests/exporting/test_standalone.py::test_eight_threads_under_a_sanitizer[thread]",
            "tests/exporting/test_torch_form.py::test_bert",
        ],
        _OF_ONE,
    ),
    "tests/graph/test_torch_functions.py::test_what_acts_is_in_no_list[_skip_one_hop_torch_function]": "has no such function",
    **dict.fromkeys(
        [f"tests/exporting/test_hostile_calls.py::test_encoders_in_one_kernel_load_as_they_were_exported[{masked}]" for masked in (False, True)],
        "does not describe what the encoder's kernel returns",
    ),
    "tests/distributed/test_collectives.py::test_in_the_graph[all_to_all]": "gloo has no all_to_all",
    "tests/distributed/test_collectives.py::test_in_the_graph[functional_operators]": "names operators otherwise",
    "tests/graph/test_effects.py::test_a_refused_operator_is_a_typed_error": "has no operator that looks for NaN",
}
