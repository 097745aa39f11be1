use super::{Mechanism, Performer};

#[test]
fn there_are_seven_mechanisms_and_their_names_lead_back_to_them() {
    for (index, mechanism) in Mechanism::ALL.into_iter().enumerate() {
        assert_eq!(mechanism as usize, index, "listed once, in order");
        assert_eq!(Mechanism::from_name(mechanism.name()), Some(mechanism));
        assert_eq!(Mechanism::from_name(&mechanism.name().to_uppercase()), Some(mechanism));
        assert_eq!(Mechanism::from_name(&mechanism.name().replace('_', " ")), Some(mechanism));
        assert_eq!(Mechanism::from_name(&mechanism.name().replace('_', "-")), Some(mechanism));
        for alias in mechanism.aliases() {
            assert_eq!(Mechanism::from_name(alias), Some(mechanism));
        }
        assert!(mechanism.description().ends_with('.'));
    }
}

#[test]
fn the_names_of_earlier_tools_are_understood() {
    for (alias, mechanism) in [
        ("RPCs", Mechanism::Rpcs),
        ("create", Mechanism::AppendClientJournal),
        ("V.Apply", Mechanism::VolatileApply),
        ("apply", Mechanism::NonvolatileApply),
        ("save", Mechanism::LocalPersist),
        ("persist", Mechanism::GlobalPersist),
    ] {
        assert_eq!(Mechanism::from_name(alias), Some(mechanism));
    }
}

#[test]
fn no_part_of_a_name_is_taken_for_the_name() {
    for mechanism in Mechanism::ALL {
        for cut in 0..mechanism.name().len() {
            assert_eq!(Mechanism::from_name(&mechanism.name()[..cut]), None);
        }
    }
    assert_eq!(Mechanism::from_name("volatile_ap"), None);
}

#[test]
fn only_rpcs_and_stream_involve_the_server() {
    for mechanism in Mechanism::ALL {
        let performer = match mechanism {
            Mechanism::Rpcs => Performer::ClientToMds,
            Mechanism::Stream => Performer::Mds,
            Mechanism::AppendClientJournal
            | Mechanism::VolatileApply
            | Mechanism::NonvolatileApply
            | Mechanism::LocalPersist
            | Mechanism::GlobalPersist => Performer::Client,
        };
        assert_eq!(mechanism.performed_by(), performer);
    }
}
