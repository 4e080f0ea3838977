// Why an envelope was not opened.

import DoubleRatchet
package import Envelope

/// Why an envelope was not opened.
package enum OpenFailure: String, Sendable, Equatable, CaseIterable {
    /// Altered, forged, or meant for somebody else.
    case notAuthentic = "not_authentic"
    /// It was opened before; a copy.
    case copy
    /// Too many messages before it are missing.
    case tooFarAhead = "too_far_ahead"
    /// Not an envelope that this version can read.
    case malformed
    /// Made by a program that is older than this one, and cannot be opened by it: the sender has to update.
    case olderVersion = "older_version"
    /// Made by a program that is newer than this one: the reader has to update.
    case newerVersion = "newer_version"
    /// It names a device that is not known here.
    case unknownSender = "unknown_sender"
    /// The source of the line is not the account that the envelope names.
    case wrongSource = "wrong_source"
    /// It is sealed under a key for the room that has not come, or was never meant for this device.
    case keyMissing = "key_missing"
    /// It was said before this device became a reader.
    case beforeJoining = "before_joining"
    /// Its sender is not in the room that it stands in.
    case notInRoom = "not_in_room"
    /// The store did not take the change.
    case store
    /// It was said in a room before its reader came.
    case notRecipient = "not_recipient"
    /// It was opened before, and its text is not kept any more.
    case forgotten

    package init(_ error: EnvelopeError) {
        self =
            switch error {
            case .outdated: .olderVersion
            case .unsupportedVersion: .newerVersion
            case .unsupportedKind, .malformed: .malformed
            }
    }

    /// What a ratchet message's version makes impossible; nothing where it is this program's.
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
