// Reasons for which an envelope was not opened.

import DoubleRatchet
package import Envelope

/// Why an envelope was not opened.
package enum OpenFailure: String, Sendable, Equatable, CaseIterable {
    /// Altered, forged, or meant for another device.
    case notAuthentic = "not_authentic"
    /// A copy: it was opened before.
    case copy
    /// Too many messages before it are missing.
    case tooFarAhead = "too_far_ahead"
    /// Not an envelope that this version can read.
    case malformed
    /// Made by an older program, in a form that this one cannot open: the sender has to update.
    case olderVersion = "older_version"
    /// Made by a newer program: the reader has to update.
    case newerVersion = "newer_version"
    /// It names an unknown device.
    case unknownSender = "unknown_sender"
    /// It shows a device list, and no more peers can be pinned.
    case tooManyPeers = "too_many_peers"
    /// It shows a fork of the reader's own device list: one of the reader's devices may be stolen.
    case ownListForked = "own_list_forked"
    /// The source of the line is not the account that the envelope names.
    case wrongSource = "wrong_source"
    /// It is sealed under a sender key that has not come, or that was never meant for this device.
    case keyMissing = "key_missing"
    /// It was sent before this device received the sender key.
    case beforeJoining = "before_joining"
    /// Its sender is not in the room in which it was received.
    case notInRoom = "not_in_room"
    /// What the store has cannot be read, or nothing can be added to it.
    case store
    /// The store does not answer, or did not commit the change: it can be tried again.
    case notCommitted = "not_committed"
    /// It was sent in a room before its reader joined.
    case notRecipient = "not_recipient"
    /// It was opened before, and its text is no longer stored.
    case forgotten

    package init(_ error: EnvelopeError) {
        self =
            switch error {
            case .outdated: .olderVersion
            case .unsupportedVersion: .newerVersion
            case .unsupportedKind, .malformed: .malformed
            }
    }

    /// The failure that a ratchet message's version causes; nil if this program supports the version.
    package init?(versionOf message: [UInt8]) {
        do throws(RatchetError) {
            _ = try PreKeyMessage.header(of: message.span)
            return nil
        } catch {
            switch error {
            case .downgrade: self = .olderVersion
            case .unsupportedVersion: self = .newerVersion
            default: return nil
            }
        }
    }
}
