//! The behaviours that all back ends share, tested on each of them over real sockets, and in the simulator.
//!
//! A case is a function of a [`stage::Stage`]. The tables below list the cases of each environment. A back end that this
//! machine lacks fails the tests, because a suite that skips cases proves nothing.

#![cfg(any(target_os = "linux", windows))]
#![allow(missing_docs, unreachable_pub, reason = "a test: nobody uses it as a library")]

mod cases;
#[cfg(target_os = "linux")]
mod linux;
mod loopback;
mod simulated;
mod stage;
mod system;
mod temporary;
mod transfers;

/// Creates a module of tests: each of the cases in one scene.
macro_rules! play {
    ($room:ident, $scene:ty, $($from:ident::{$($case:ident),* $(,)?}),* $(,)?) => {
        mod $room {
            $($(
                #[test]
                fn $case() {
                    let mut stage = crate::stage::Stage::<$scene>::open();
                    crate::$from::$case(&mut stage);
                    stage.finish();
                }
            )*)*
        }
    };
}

/// The cases that depend only on the reactor's guarantees.
macro_rules! on {
    ($room:ident, $scene:ty $(, $($from:ident::$cases:tt),*)?) => {
        play! {
            $room, $scene,
            cases::{
                a_listener_accepts_all_who_wait,
                a_paused_listener_accepts_after_it_is_resumed,
                bytes_arrive_in_order_however_they_are_cut,
                what_arrived_before_receiving_was_asked_for_is_not_lost,
                more_than_a_lease_arrives_in_pieces,
                narrow_leases_are_short_and_lose_nothing,
                the_end_comes_after_the_data_and_once,
                after_the_peers_end_sending_still_works,
                an_end_is_hinted_while_receiving_is_paused,
                an_end_is_hinted_beside_a_blocked_send,
                a_paused_connection_keeps_what_arrives,
                pausing_and_resuming_within_a_turn_loses_nothing,
                segments_arrive_in_order,
                a_send_gives_its_segments_back,
                a_send_to_a_slow_reader_goes_on_as_it_reads,
                a_connection_receives_while_its_send_is_blocked,
                a_busy_connection_does_not_starve_a_quiet_one,
                a_file_that_shrinks_while_it_is_sent_fails_the_send,
                a_reset_fails_receiving,
                a_reset_is_told_while_receiving_is_paused,
                a_reset_fails_a_blocked_send,
                a_blocked_send_can_be_given_up,
                a_shutdown_waits_for_the_send_in_flight,
                closing_delivers_what_was_sent,
                aborting_resets,
                closing_gives_back_an_unfinished_send,
                closing_a_listener_ends_those_that_nobody_accepted,
                what_was_not_fetched_before_a_close_is_gone,
                a_connection_may_be_closed_as_soon_as_it_is_accepted,
                a_stale_token_is_ignored,
                a_place_is_used_again_only_after_its_end_was_told,
                connecting_succeeds_or_is_refused,
                a_connect_may_be_closed_within_its_turn,
                what_the_server_says_first_is_received_after_connecting,
                random_mixes_deliver_every_byte,
            }
            $(, $($from::$cases),*)?
        }
    };
}

/// The cases of `on`, and cases that need an operating system.
macro_rules! on_the_system {
    ($room:ident, $back_end:ty $(, $($from:ident::$cases:tt),*)?) => {
        on! {
            $room, crate::loopback::Loopback<$back_end>,
            loopback::{
                many_wakes_are_one_event,
                a_wake_ends_the_wait,
                wakes_of_many_threads_are_never_lost,
                a_job_comes_back_as_an_event,
                a_job_too_many_is_refused,
                hanging_remote_jobs_delay_no_local_job,
                hashes_take_no_thread_of_local_jobs,
                a_wait_ends_at_its_moment,
                what_was_not_fetched_comes_first,
                a_flooded_connection_can_be_paused_at_every_event,
                a_flooded_connection_can_be_closed,
                a_paused_connection_holds_no_more_than_its_socket,
                a_port_is_free_as_soon_as_its_listener_is_gone,
                a_reactor_that_is_dropped_lets_go_of_everything,
                a_changed_folder_is_news,
            },
            transfers::{
                a_file_arrives_between_its_head_and_its_end,
                ranges_of_files_arrive_in_order,
                a_range_beyond_four_gigabytes_arrives,
                a_file_that_is_shorter_than_its_range_fails_the_send,
                a_file_that_shrinks_in_flight_fails_the_send,
                a_file_in_flight_can_be_given_up,
                closing_ends_a_file_in_flight,
                a_reset_fails_a_file_in_flight,
                a_connection_receives_while_a_file_is_in_flight,
                a_slow_reader_of_a_file_is_seen_to_read,
                many_files_are_in_flight_at_once,
                a_reactor_that_is_dropped_ends_files_in_flight,
            }
            $(, $($from::$cases),*)?
        }
    };
}

/// The cases of `on_the_system`, and cases that need what only Linux has.
#[cfg(target_os = "linux")]
macro_rules! on_linux {
    ($room:ident, $back_end:ty) => {
        on_the_system! {
            $room, $back_end,
            linux::{
                a_unix_socket_serves_alike,
                a_connect_under_way_can_be_given_up,
                a_recycled_socket_connects_again,
                only_what_is_over_in_order_is_kept,
                a_retired_listener_serves_those_under_way_and_no_others,
                a_watched_descriptor_tells_when_it_is_readable,
                a_notice_comes_before_what_was_sent_after_it,
                what_the_peer_has_not_got_is_unacknowledged,
                what_comes_while_it_gathers_is_told_by_one_wait,
            }
        }
    };
}

#[cfg(target_os = "linux")]
mod all_of_linux {
    on_linux!(poll, crate::linux::Poll);
    on_linux!(epoll_level, crate::linux::EpollLevel);
    on_linux!(epoll_edge, crate::linux::EpollEdge);
    on_linux!(uring, crate::linux::Uring);
    on_linux!(uring_single, crate::linux::UringSingle);
    on_linux!(uring_starved, crate::linux::UringStarved);
    on_linux!(uring_gathering, crate::linux::UringGathering);
    play!(uring_lacking_buffers, crate::loopback::Loopback<crate::linux::UringStarved>,
        linux::{nobody_waits_for_a_buffer});
}
#[cfg(windows)]
on_the_system!(afd, crate::loopback::Afd);
#[cfg(windows)]
on_the_system!(afd_server, crate::loopback::AfdServer, transfers::{a_file_beyond_two_gigabytes_arrives});
on!(sim, crate::simulated::Simulated);
