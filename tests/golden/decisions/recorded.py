"""Which runs are pinned: the test that each was recorded from, and which of the engines of that test it is."""

from __future__ import annotations

from pathlib import Path

__all__ = ["RECORDED", "RUNS"]

RUNS = Path(__file__).parent / "runs"

_B, _F, _U = "tests/behaviour/test_", "tests/faults/test_", "tests/unit/test_"

RECORDED: dict[str, tuple[str, int]] = {
    # Calls, values and futures.
    "versions": (f"{_B}versions.py::test_each_reader_sees_the_version_of_its_call[workers]", 1),
    "readers-beside": (f"{_B}versions.py::test_readers_of_one_version_run_at_the_same_time[workers]", 1),
    "map": (f"{_B}map.py::test_an_element_whose_item_failed_fails_its_consumer[workers]", 1),
    "parts-of-arrays": (f"{_B}views.py::test_shared_memory_goes_when_nobody_needs_it[workers]", 1),
    "implementations": (f"{_B}implementations.py::test_each_is_tried_and_then_the_fastest_runs", 1),
    "countable": (f"{_B}countable_resources.py::test_two_tasks_at_a_time_never_see_the_same_gpu", 1),
    "persistent": (f"{_B}persistent_objects.py::TestFailures::test_two_objects_are_changed_or_none[local-workers]", 1),
    "stored-values": (
        f"{_B}persistent_objects.py::TestTasks::test_the_same_holds_where_only_a_future_is_known[local-workers-10]",
        1,
    ),
    # Outputs before the end.
    "early-outputs": (f"{_F}eager_faults.py::test_outputs_outlive_the_worker_that_made_them", 1),
    "early-timeout": (f"{_F}eager_faults.py::test_a_producer_that_takes_too_long", 1),
    "streams": (f"{_B}streams.py::test_a_collection_can_be_a_stream[workers-0]", 1),
    "stream-held-back": (f"{_F}eager_faults.py::test_a_producer_that_is_held_back_is_cancelled", 1),
    "streamed-file": (
        f"{_B}program_streams.py::test_the_failure_of_the_writer_reaches_who_waits_for_its_bytes[workers]",
        1,
    ),
    # Failures.
    "retries": (f"{_B}retry_delay.py::test_others_run_while_a_task_pauses[workers]", 1),
    "worker-dies": (f"{_F}worker_deaths.py::test_consumers_of_a_task_whose_worker_died_name_it", 1),
    "timeout": (f"{_F}worker_deaths.py::test_task_that_hangs_is_ended_by_its_timeout[hang_in_a_regular_expression]", 1),
    "ignored": (f"{_B}objects_after_failures.py::test_ignored_failures_between_others[workers]", 1),
    "objects-after-failures": (
        f"{_B}objects_after_failures.py::test_what_was_being_changed_in_place_is_lost_and_the_error_says_so[workers]",
        1,
    ),
    "cancelled-writer": (
        f"{_B}ignored_files.py::test_a_writer_that_is_cancelled_leaves_the_file_and_nothing_else[workers]",
        1,
    ),
    "called-after-failure": (
        f"{_F}task_failures.py::test_a_task_called_when_its_input_is_known_to_have_failed_is_told_of[parallel]",
        1,
    ),
    # Memory.
    "spilled-results": (f"{_F}store_full.py::test_results_beyond_the_capacity_are_spilled_and_right", 1),
    "spilled-arguments": (f"{_F}store_full.py::test_arguments_beyond_the_capacity_are_spilled_and_right", 1),
    "spilled-inputs": (f"{_F}spilling.py::test_inputs_that_exceed_the_capacity_together_and_alone[parallel]", 1),
    "restored": (f"{_F}spilling.py::test_a_task_cancelled_while_it_waits_for_a_slow_restore", 1),
    "lost": (f"{_F}lost_segments.py::test_a_diamond_whose_top_is_gone[memory]", 1),
    "lost-file": (f"{_F}lost_segments.py::test_one_that_wrote_a_file", 1),
    "lost-and-cancelled": (f"{_F}lost_segments.py::test_it_is_cancelled_while_it_is_run_again", 1),
    # Files, and layers.
    "files": (f"{_B}files.py::test_a_chain_of_writers_and_readers[workers-str]", 1),
    "file-read-early": (f"{_B}early_files.py::test_a_writer_of_the_next_version_does_not_wait[workers]", 1),
    "io-tasks": (f"{_B}io_tasks.py::test_other_constraints_are_met_too[workers]", 1),
    "aged": (
        f"{_B}bandwidth_constraints.py::test_a_task_that_was_passed_over_for_long_goes_first[0.05-False-workers]",
        1,
    ),
    "layers": (f"{_B}storage_layers.py::test_delete_file_frees_room[workers]", 1),
    "flushed": (f"{_B}flushing.py::test_files_written_anew_while_they_move[workers-0]", 1),
    "stopped-while-moving": (f"{_B}flushing.py::test_stop_while_files_move[workers]", 1),
    "wanted-home": (f"{_F}moves_fail_at_nth.py::test_program_that_changes_a_file_while_it_moves", 1),
    "full-layers": (f"{_F}full_layers.py::test_files_move_out_of_the_way_when_every_layer_is_full[parallel]", 1),
    "overflow": (f"{_F}full_layers.py::test_overflow_is_not_counted_as_a_retry", 1),
    "waits-for-room": (f"{_F}full_layers.py::test_producers_wait_until_the_program_deletes_a_file", 1),
    "left-by-others": (f"{_U}engine_storage.py::test_what_earlier_runs_left_takes_room_and_is_pointed_out", 1),
    "shared-layer": (
        f"{_U}engine_sharing.py::test_before_anything_is_learned_as_many_run_beside_others_as_there_are_cores",
        1,
    ),
    # Learned constraints.
    "learned": (f"{_B}learned_constraints.py::test_failures_do_not_count[workers]", 1),
    "learned-from-the-start": (f"{_U}steering_engine.py::test_the_best_number_is_found_soon", 1),
    "learned-once-more": (f"{_U}steering_engine.py::test_what_is_known_of_another_device_is_of_no_use", 2),
    "learned-on-several-nodes": (
        f"{_U}steering_engine.py::test_a_node_that_joins_learns_with_the_one_that_was_there",
        1,
    ),
    "learned-in-epochs": (
        f"{_B}learned_constraints.py::test_fewer_instances_than_an_epoch_are_done_when_the_program_waits"
        "[workers-1-bounded-published]",
        1,
    ),
    # Several processes, and nodes that are simulated.
    "mpi": (f"{_B}mpi_eager.py::test_what_was_handed_over_before_a_failure_stays[raise]", 1),
    "gang-on-a-lost-node": (f"{_U}sim_gangs.py::test_a_gang_runs_again_when_one_of_its_nodes_is_lost", 1),
    "gang-too-late": (f"{_U}sim_failures.py::test_a_gang_that_is_sent_to_a_node_which_is_gone_already", 1),
    "simulated-flush": (f"{_B}simulation.py::test_files_flow_down_during_the_run_or_at_its_end[True-6.0]", 1),
}
