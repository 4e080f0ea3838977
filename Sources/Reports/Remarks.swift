// Every text that people see, in one place and in plain English. None of them ever holds what somebody wrote.

package import Devices
package import Protection

/// What operators can word themselves; `{target}` stands for the name that was written to.
package struct RemarkTexts: Sendable, Equatable {
    package var outsider =
        "Not sent: {target} is not connected through this gateway, so a message to them cannot be protected. Ask them to connect "
        + "through it, or ask your operator."
    package var required =
        "Not sent: messages must be end-to-end encrypted here, and your client or that of {target} cannot do it yet. "
        + "Run a sidecar beside it: pawl sidecar --upstream with this network's address. Your operator can help."
    package var room =
        "Not sent: messages must be end-to-end encrypted here, and not everybody in {target} can do it yet. Run a "
        + "sidecar beside your client: pawl sidecar --upstream with this network's address."

    package init() {}

    /// What is said over HTTP if nothing else is configured: there is no sidecar to run.
    package static let http: RemarkTexts = {
        var texts = RemarkTexts()
        texts.required =
            "Not sent: messages must be end-to-end encrypted here, and your app or that of {target} cannot do it. Use an app "
            + "that encrypts by itself, or ask your operator."
        texts.room =
            "Not sent: messages must be end-to-end encrypted here, and not everybody in this conversation has an app that can. Ask "
            + "your operator which apps can."
        return texts
    }()

    /// What a sidecar says.
    package static let sidecar: RemarkTexts = {
        var texts = RemarkTexts()
        texts.outsider =
            "Not sent: no keys of {target} are known, and your sidecar sends nothing unencrypted (sidecar.require)."
        texts.room =
            "Not sent: somebody in {target} has no keys that your sidecar knows, and it sends nothing unencrypted."
        return texts
    }()
}

/// Words for refusals, failures and gaps.
package enum Remarks {
    /// What marks plaintext from somebody without keys.
    package static let notEncrypted = "[not encrypted]"

    /// Stands for a conversation whose name says nothing to people.
    package static let thisConversation = "this conversation"

    package static func refusal(_ refusal: Refusal, target: String, texts: RemarkTexts) -> String {
        switch refusal {
        case .outsider: texts.outsider.replacingTarget(target)
        case .required: texts.required.replacingTarget(target)
        case .room: texts.room.replacingTarget(target)
        case .notInRoom: "Not sent: join \(target) first. A message from outside a room cannot be protected."
        case .directConnection:
            "Not sent: a direct connection (DCC) would go around the encryption of this gateway."
        case .verb: "Not done: this gateway does not let this command through while messages are protected."
        case .unsealed:
            "Not sent: your client and that of \(target) can encrypt to each other, and yours has sent plain text."
        case .changedKeys:
            "Not sent: \(target) shows keys that are not the ones you know. Ask \(target) by another way whether they "
                + "have started again; then: pawl sidecar verify \(target), and pawl sidecar accept \(target)."
        case .name:
            "Not sent: this name is not written in UTF-8, and a message to it cannot be protected. Set your client to UTF-8."
        case .search:
            "Not searched: the server would read the words that you look for, and it cannot find them in protected messages."
        case .members:
            "Not sent: the chat server did not say who is in this conversation, so the gateway cannot tell whether your "
                + "message must be encrypted. Try again in a moment."
        case .media: "Not sent: this file would be readable by the server, and messages are protected here."
        case .latched:
            "Not sent: your conversation with \(target) is protected, and this message could not be. "
                + "An operator can reset it."
        }
    }

    package static func foreignRoom(_ room: String) -> String {
        "You are not in \(room) any more: its name is not written in UTF-8, and so could not be said again. Join it again."
    }

    package static func failure(_ failure: OpenFailure, from source: String, inSidecar: Bool = false) -> String? {
        switch failure {
        case .unknownSender where inSidecar:
            "An encrypted message from \(source) could not be opened: your devices have no keys in common. New ones are "
                + "being offered; ask \(source) to send it again."
        case .copy, .notRecipient, .forgotten: nil
        case .notAuthentic:
            "An encrypted message from \(source) could not be opened: it was altered on its way, or meant for "
                + "somebody else."
        case .wrongSource:
            "An encrypted message was withheld: it came under the name \(source), and somebody else had sealed it."
        case .tooFarAhead:
            "An encrypted message from \(source) could not be opened: too many messages before it were lost."
        case .malformed:
            "An encrypted message from \(source) could not be opened: it was cut, or made by another version."
        case .olderVersion:
            "\(source) uses an older version of Pawl, which cannot encrypt to yours: neither of you can read what the other "
                + "one encrypts. Ask \(source) to update."
        case .newerVersion:
            "An encrypted message from \(source) could not be opened: it was made by a newer version of Pawl than yours. "
                + "Update yours."
        case .unknownSender:
            "An encrypted message from \(source) could not be opened: its sender has no device at this gateway."
        case .keyMissing:
            "An encrypted message from \(source) could not be opened: the key for this room has not come. It is asked for."
        case .beforeJoining: "An encrypted message from \(source) was sent before you could read here."
        case .notInRoom: "An encrypted message was withheld: \(source) is not in the room that it came in."
        case .store:
            "A message from \(source) could not be shown: the gateway's store did not take it. Ask the operator."
        }
    }

    /// What stands in the place of a message of a JSON backend that could not be opened.
    package static func notOpened(_ failure: OpenFailure, from sender: String?) -> String {
        let source = sender ?? "somebody"
        return "[" + (Self.failure(failure, from: source) ?? Self.notReadable(from: source)) + "]"
    }

    private static func notReadable(from source: String) -> String {
        "An encrypted message from \(source) cannot be read any more: the gateway does not keep what opens it."
    }

    package static func withheld(from source: String) -> String {
        "A message under the name \(source) was withheld: it was not encrypted, and your conversation with "
            + "\(source) is protected."
    }

    /// The same where a conversation has more members than two.
    package static func withheldHere(from source: String) -> String {
        "A message under the name \(source) was withheld: it was not encrypted, and this conversation is protected."
    }

    /// In the place of a sealed message of which the client has asked for parts only.
    package static func withoutEnvelope(from source: String) -> String {
        "[A message from \(source) cannot be shown: your app asks the server for parts of messages only (a filter), and what opens "
            + "this one is not among them.]"
    }

    /// In the place of a message of which not even the sender can be believed.
    package static let withheldUnread = "A message was withheld: the gateway cannot tell what it says."

    package static func withheldByPolicy(from source: String) -> String {
        "A message from \(source) was withheld: it was not encrypted, and this network asks for encryption."
    }

    package static func gap(_ count: Int, from source: String) -> String {
        count == 1
            ? "One message from \(source) before this one was lost on its way."
            : "\(count) messages from \(source) before this one were lost on their way."
    }

    package static func fragmentsLost(from source: String) -> String {
        "Part of a message from \(source) did not arrive, so it could not be opened."
    }

    package static func truncated(from source: String) -> String {
        "An earlier message from \(source) was truncated: the server has kept only part of it, so it cannot be opened."
    }

    package static func beforeJoining(_ room: String) -> String {
        "Earlier messages in \(room) were encrypted before you came, for those who were there. This is said once."
    }

    package static func notKept(_ room: String) -> String {
        "Earlier messages in \(room) were encrypted, and the gateway does not keep what opens them. This is said once."
    }

    package static func notSeen(target: String) -> String {
        "The backend took your message to \(target), but \(target) has not received it. Send it again if it matters."
    }

    package static func stripped(_ verb: String) -> String {
        "Your \(verb) text was not passed on: it would have been readable by the server. "
            + "This is said once for each command."
    }

    package static func roomNotProtected(_ room: String) -> String {
        "Your private messages are encrypted, but \(room) is not: the server can read what you write there. An operator can "
            + "protect the room for everybody in it. This notice is shown once for each room."
    }

    package static func notCommitted(target: String) -> String {
        "Not sent: the gateway could not store your message to \(target). Ask the operator to look at the disk."
    }

    package static let tooManyPending =
        "Not sent: too many of your messages still wait for the server. Try again in a moment."

    package static func filtered(target: String) -> String {
        "Not sent: the server refused the encrypted message to \(target). A filter of the server may block it; "
            + "it was not sent in the clear."
    }

    package static func expired(target: String) -> String {
        "Your message to \(target) was not sent: \(target) did not come back in time."
    }

    /// Why a request is dead, for reports.
    package static let droppedReason = "dropped by an operator"

    package static func dropped(target: String) -> String {
        "Not sent: an operator of the gateway has dropped your message to \(target)."
    }

    package static func lapsed(_ count: Int, target: String) -> String {
        "Not sent: \(count == 1 ? "a message" : "\(count) messages") of yours to \(target) waited for too long."
    }

    package static func noRequest(_ id: UInt64) -> String {
        "There is no request \(id) at this gateway. Finished ones are kept for an hour; see: pawl queue list."
    }

    package static let backendGone =
        "The chat server does not answer. You stay connected: the gateway goes on trying, and what you write waits."
    package static let backendBack = "The chat server is back. What waited is being sent."
    package static let notLetIn = "the chat server is back and does not let you in again."
    package static let loginRefused = "the chat server is back, and your login could not be repeated. Connect again."
    package static let loginNotRepeatable =
        "The chat server has gone, and the gateway cannot repeat your kind of login. Connect again."

    package static func backendLost(target: String) -> String {
        "Perhaps not sent: the chat server went away before it confirmed your message to \(target)."
    }

    /// When the gateway is told to stop while messages wait.
    package static let stopping =
        "The gateway is being restarted. What you have written is still being sent; what you write now is not. Connect again "
        + "in a moment."

    package static func notSentAtStop(_ count: Int, target: String) -> String {
        "Not sent: the gateway was stopped before it could send \(messages(count)) of yours to \(target). Send them again."
    }

    package static func perhapsSentAtStop(_ count: Int, target: String) -> String {
        "Perhaps not sent: the gateway was stopped before the server confirmed \(messages(count)) of yours to \(target)."
    }

    package static func keptAtStop(_ count: Int, target: String) -> String {
        "The gateway was stopped. It keeps \(messages(count)) of yours to \(target), and sends them when you are connected again."
    }

    private static func messages(_ count: Int) -> String { count == 1 ? "1 message" : "\(count) messages" }

    package static let gone = "the connection ended before the backend had it"

    /// The line in words that goes before the first envelope of a conversation, for somebody who reads it without a
    /// gateway. It holds no `:` and no Base64.
    package static func announcement() -> String {
        "? This conversation is encrypted by a Pawl gateway. If you can read this line, you are connected without it "
            + "and will see letters without sense: connect through the gateway, or ask the sender."
    }

    // MARK: People's own devices

    package static let otherDevice =
        "Not sent: the message was sealed by another device than the one of this connection."

    package static let notOwnDevice =
        "Not sent: the message was sealed by a device that is not one of yours, or has been removed. Prove your device again."

    package static func forOtherDevice(from nick: String) -> String {
        "\(nick) writes to a device of yours that can encrypt. This client cannot read it, and says so once."
    }

    /// What stands in the place of a message of a JSON backend that is for a person's own device.
    package static func forOwnDevice(from sender: String?) -> String {
        "[\(sender ?? "Somebody") writes to a device of yours that can encrypt. This client cannot read it.]"
    }

    package static let frontFound =
        "The gateway of this network has your keys: people with a device of their own are found by it."

    package static func frontRefused(_ reason: String) -> String {
        "The gateway of this network has not taken it: \(reason)."
    }

    // MARK: Sidecars

    package static func met(_ nick: String) -> String {
        "Keys were exchanged with \(nick). From now on your messages to each other are end-to-end encrypted. To be sure "
            + "that nobody stands between, compare: pawl sidecar verify \(nick)"
    }

    package static func roomProtected(_ room: String, readers: Int) -> String {
        "What you say in \(room) is end-to-end encrypted from now on, for \(readers) others. Who joins without a sidecar "
            + "cannot read it."
    }

    package static func roomOutsiders(_ room: String, _ nicks: [String], isProtected: Bool) -> String {
        "In \(room) these cannot read what you say: \(list(nicks, limit: 10))."
            + (isProtected ? " " + wayBack(room) : "")
    }

    /// Names with commas, of which at most so many are written.
    private static func list(_ nicks: [String], limit: Int) -> String {
        let names = nicks.prefix(limit).joined(separator: ", ")
        return nicks.count > limit ? "\(names) and \(nicks.count - limit) more" : names
    }

    /// A word as a person can paste it into a shell: names of rooms may hold every character of a shell's.
    static func shellWord(_ word: String) -> String { "'" + word.replacing("'", with: "'\\''") + "'" }

    package static func wayBack(_ room: String) -> String {
        "You protect \(room); to send plain text there again: pawl sidecar plain \(shellWord(room))"
    }

    package static func roomSealed(_ room: String, readers: Int, isProtected: Bool) -> String {
        "What you say in \(room) is end-to-end encrypted for \(readers) others, "
            + (isProtected
                ? "whoever joins: you protect this room."
                : "as long as everybody here has a sidecar. To keep it so, whoever joins: pawl sidecar protect "
                    + shellWord(room))
    }

    package static func roomPlain(_ room: String, _ nicks: [String]) -> String {
        let reason = nicks.isEmpty ? "" : ": no keys are known of \(list(nicks, limit: 10))"
        return
            "What you say in \(room) is not encrypted any more\(reason). To encrypt it all the same: pawl sidecar protect "
            + shellWord(room)
    }

    package static func roomJustPlain(_ room: String) -> String {
        "Not sent: messages in \(room) have just ceased to be encrypted, see there. Send it again in a few seconds to send "
            + "it unencrypted."
    }

    package static func withheld(from source: String, inRoom room: String) -> String {
        "A message under the name \(source) was withheld: it was not encrypted. \(wayBack(room))"
    }

    package static func asks(_ nick: String, _ act: RoomRequest.Act, _ room: String) -> String {
        switch act {
        case .protect:
            "\(nick) asks you to protect \(room): then nothing that you say there goes out unencrypted, and people without "
                + "a sidecar cannot read it. To follow: pawl sidecar protect \(shellWord(room))"
        case .plain:
            "\(nick) asks you to protect \(room) no longer: then people without a sidecar can read what you say there while "
                + "they are in it, and so can the server. To follow: pawl sidecar plain \(shellWord(room))"
        }
    }

    package static func requestElsewhere(_ nick: String, _ room: String) -> String {
        "\(nick) has sent a request for \(room) on a network of another name. It was ignored."
    }

    /// What the announcements below begin with; it stands behind the marker of envelopes. They hold no `:`.
    package static let plainAnnouncementStart = "? Not encrypted from now on"
    package static let sealedAnnouncementStart = "? Encrypted"

    /// The line in words for everybody in a room before the first plain text of somebody whose messages were sealed.
    package static func plainAnnouncement(_ nicks: [String]) -> String {
        let reason = nicks.isEmpty ? "" : ", because \(list(nicks, limit: 3)) cannot read encrypted messages"
        return plainAnnouncementStart + " are messages in this room\(reason). Members with a Pawl sidecar can keep "
            + "theirs encrypted with the command pawl sidecar protect."
    }

    /// The line in words for people who come into a room in which messages are sealed for others.
    package static func sealedAnnouncement(_ nicks: [String]) -> String {
        sealedAnnouncementStart + " end-to-end are messages in this room. You will see letters without sense, "
            + "\(list(nicks, limit: 3)), unless your client runs behind a Pawl sidecar. Ask the members for it, or to send "
            + "plain text."
    }

    package static let adopted = "Your devices have a new list. See: pawl sidecar status."
    package static let revoked =
        "This device has been removed by another one of yours. It can read no new messages; people no longer accept its."

    package static func changedKeys(_ nick: String) -> String {
        "\(nick) shows keys that are not the ones you know. Either they have started again, or somebody else writes in "
            + "their name. Nothing is sent until you accept: pawl sidecar verify \(nick), pawl sidecar accept \(nick)"
    }

    /// For somebody whose keys are not those that are known of them.
    package static let newKeysAnnouncement =
        "? Your encryption keys are not those that I know of you, so I am shown nothing that you write encrypted until I accept "
        + "the new ones. Tell me by another way that you have started again."

    package static func otherName(_ nick: String, of name: String) -> String {
        "\(nick) writes with the keys of \(name)."
    }

    package static func crossed(_ nick: String) -> String {
        "An encrypted message from \(nick) could not be opened: your devices were just agreeing on keys. They go on; ask "
            + "\(nick) to send it again."
    }

    package static let frontMissing =
        "This network had a gateway that knew your keys, and it does not show itself now: it has gone, or somebody between "
        + "hides it. Who is known stays protected; first words to others go in plain text."

    package static func sealedFor(_ nick: String, name: String) -> String {
        "What you write to \(nick) is sealed for the keys of \(name), whom you know by that name."
    }

    package static func noKeys(_ target: String) -> String {
        "Not sent: your devices and those of \(target) have not agreed on keys yet. They are not there, do not answer, "
            + "or use an older version of Pawl."
    }

    package static func markedCTCP(from source: String) -> String {
        "\(notEncrypted) The next CTCP from \(source) was not encrypted."
    }
}

extension String {
    fileprivate func replacingTarget(_ target: String) -> String {
        split(separator: "{target}", omittingEmptySubsequences: false).joined(separator: target)
    }
}
