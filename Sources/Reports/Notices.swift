// The notices and error texts shown to chat users. None of them contains the text of a message.

package import Devices
package import Protection

/// The texts that operators can replace. `{target}` stands for the recipient's name.
package struct NoticeTexts: Sendable, Equatable {
    package var outsider =
        "Not sent: {target} is not connected through this gateway, so a message to them cannot be protected. Ask them to connect "
        + "through it, or ask your operator."
    package var required =
        "Not sent: messages must be end-to-end encrypted here, and your client or that of {target} cannot do it yet. "
        + "Run a sidecar beside it: pawl sidecar --upstream with this network's address. Your operator can help."
    package var room =
        "Not sent: messages must be end-to-end encrypted here, and not everybody in {target} can do it yet. Run a "
        + "sidecar beside your client: pawl sidecar --upstream with this network's address."

    /// In place of ``room`` if the gateway knows who cannot, with `{people}` for their names; nil if it is not told.
    package var roomOf: String?

    package init() {}

    /// The defaults over HTTP, where there is no sidecar to run.
    package static let http: NoticeTexts = {
        var texts = NoticeTexts()
        texts.required =
            "Not sent: messages must be end-to-end encrypted here, and your app or that of {target} cannot do it. Use an app "
            + "that encrypts by itself, or ask your operator."
        texts.room =
            "Not sent: messages must be end-to-end encrypted here, and not everybody in this conversation has an app that can. Ask "
            + "your operator which apps can."
        texts.roomOf =
            "Not sent: messages must be end-to-end encrypted here, and these people have no app that can: {people}. Ask them to "
            + "use one; your operator knows which apps can."
        return texts
    }()

    /// The texts of a sidecar.
    package static let sidecar: NoticeTexts = {
        var texts = NoticeTexts()
        texts.outsider =
            "Not sent: your sidecar has no keys of {target}, and it sends nothing unencrypted (sidecar.require). Ask "
            + "{target} to run a sidecar too."
        texts.room =
            "Not sent: your sidecar does not have the keys of everybody in {target}, and it sends nothing unencrypted "
            + "(sidecar.require)."
        return texts
    }()
}

/// The texts for refusals, failures and other notices.
package enum Notices {
    /// The mark shown before plaintext.
    package static let notEncrypted = "[not encrypted]"

    /// The beginning of a command to a sidecar, as a person writes it in the chat client.
    static let control = "/msg *pawl"

    /// Used in place of a conversation's name that means nothing to people.
    package static let thisConversation = "this conversation"

    /// - Parameter people: the names of those who cannot encrypt in a room; nil if unknown.
    package static func refusal(
        _ refusal: Refusal, target: String, people: [String]? = nil, texts: NoticeTexts
    ) -> String {
        switch refusal {
        case .room where texts.roomOf != nil && people?.isEmpty == false:
            (texts.roomOf ?? "").replacing("{people}", with: list(people ?? [], limit: 10))
        case .outsider: texts.outsider.replacingTarget(target)
        case .required: texts.required.replacingTarget(target)
        case .room: texts.room.replacingTarget(target)
        case .notInRoom: "Not sent: join \(target) first. A message from outside a room cannot be protected."
        case .directConnection:
            "Not sent: a direct connection (DCC) would bypass the encryption of this gateway."
        case .verb: "Not done: this gateway does not let this command through while messages are protected."
        case .unsealed where target == thisConversation:
            "Not sent: everybody in this conversation can encrypt, but your client sent plain text. Turn on encryption in "
                + "your client."
        case .unsealed:
            "Not sent: your client and that of \(target) can encrypt to each other, but yours sent plain text. Turn on "
                + "encryption in your client."
        case .changedKeys:
            "Not sent: \(target) shows keys that are not the ones you know, or another list of devices. Ask \(target), by "
                + "another way than this chat, whether they are theirs; then: \(control) verify \(target), and \(control) accept "
                + "\(target)."
        case .name:
            "Not sent: this name is not written in UTF-8, so a message to it cannot be protected. Set your client to "
                + "UTF-8."
        case .search:
            "Not searched: the server could read your search words, and it cannot search in encrypted messages. Search "
                + "within your app instead."
        case .members:
            "Not sent: the chat server did not say who is in this conversation, so the gateway cannot tell whether your "
                + "message must be encrypted. Try again in a moment."
        case .media:
            "Not sent: messages are protected here, and this file would not be. The server could read it."
        case .latched where target == thisConversation:
            "Not sent: this conversation is protected, and this message cannot be. Ask your operator, who can end the "
                + "protection."
        case .latched:
            "Not sent: your conversation with \(target) is protected, and this message cannot be. Ask your operator, "
                + "who can end the protection."
        }
    }

    package static func foreignRoom(_ room: String) -> String {
        "You are no longer in \(room): its name is not written in UTF-8, so the gateway could not rejoin it for you. "
            + "Join it again."
    }

    package static func failure(_ failure: OpenFailure, from source: String, inSidecar: Bool = false) -> String? {
        switch failure {
        case .unknownSender where inSidecar:
            "An encrypted message from \(source) could not be opened: your devices share no keys. Your sidecar offers "
                + "new ones now; ask \(source) to send it again."
        case .copy, .notRecipient, .forgotten: nil
        case .notAuthentic:
            "An encrypted message from \(source) could not be opened: it was altered on its way, or encrypted for "
                + "someone else. Ask \(source) to send it again."
        case .wrongSource:
            "An encrypted message was withheld: it came under the name \(source), but from a device that is known as somebody "
                + "else's. Somebody may be using the name \(source), or the id of \(source)'s device. Ask \(source), by "
                + "another way than this chat, whether the message is theirs."
        case .tooFarAhead:
            "An encrypted message from \(source) could not be opened: too many messages before it were lost."
        case .malformed:
            "An encrypted message from \(source) could not be opened: it was cut off, or made by another version of "
                + "Pawl."
        case .olderVersion:
            "\(source) uses an older version of Pawl, which cannot encrypt to yours: neither of you can read the "
                + "other's encrypted messages. Ask \(source) to update."
        case .newerVersion:
            "An encrypted message from \(source) could not be opened: it was made by a newer version of Pawl than "
                + "yours. Update yours."
        case .tooManyPeers:
            "Keys from \(source) were not accepted: your sidecar knows the keys of as many people as it can. Remove "
                + "those whom you no longer write to: \(control) forget NICK. Then ask \(source) to write to you."
        case .unknownSender:
            "An encrypted message from \(source) could not be opened: its sender has no device at this gateway."
        case .ownListForked:
            "A device that is or was yours, and writes as \(source), shows another version of the list of your devices. One "
                + "of your devices may be stolen. Nothing was accepted. Compare your devices (\(control) status), and "
                + "remove those that are not yours: \(control) revoke."
        case .keyMissing:
            "An encrypted message from \(source) could not be opened: the key for this room has not arrived. Your "
                + "sidecar has asked for it."
        case .beforeJoining:
            "An encrypted message from \(source) could not be read: it was sent before you received the key for this "
                + "room."
        case .notInRoom: "An encrypted message was withheld: \(source) is not in the room that it was sent to."
        case .store, .notCommitted:
            "A message from \(source) could not be shown: the gateway could not store it. Ask the operator to look at "
                + "the disk."
        }
    }

    /// Shown in place of a message of a JSON backend that could not be opened.
    package static func notOpened(_ failure: OpenFailure, from sender: String?) -> String {
        let source = sender ?? "somebody"
        return "[" + (Self.failure(failure, from: source) ?? Self.notReadable(from: source)) + "]"
    }

    private static func notReadable(from source: String) -> String {
        "An encrypted message from \(source) can no longer be read: the gateway does not have its key any more."
    }

    package static func withheld(from source: String) -> String {
        "A message under the name \(source) was withheld: it was not encrypted, and your conversation with "
            + "\(source) is protected."
    }

    /// The same for a conversation of a JSON backend, which may have more than two members.
    package static func withheldHere(from source: String) -> String {
        "A message under the name \(source) was withheld: it was not encrypted, and this conversation is protected."
    }

    /// Shown in place of a sealed message if the client requested only parts of it.
    package static func withoutEnvelope(from source: String) -> String {
        "[A message from \(source) cannot be shown: your app asks the server for parts of messages only (a filter), "
            + "and the encrypted part is not among them.]"
    }

    /// Shown in place of a message whose sender and text the gateway cannot determine.
    package static let withheldUnread = "A message was withheld: the gateway cannot read it."

    /// Stands for a message that the backend has delivered before.
    package static let copyWithheld = "A copy of an earlier message was withheld."

    package static func withheldByPolicy(from source: String) -> String {
        "A message from \(source) was withheld: it was not encrypted, and this network requires encryption."
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
        "An earlier message from \(source) cannot be opened: the server has kept only part of it."
    }

    package static func beforeJoining(_ room: String) -> String {
        "You cannot read earlier messages in \(room): they were encrypted before you came, for the members at that "
            + "time. This notice is shown once."
    }

    package static func notKept(_ room: String) -> String {
        "You cannot read earlier messages in \(room): they are encrypted, and the gateway does not have their keys. "
            + "This notice is shown once."
    }

    package static func unopened(target: String) -> String {
        "The chat server accepted your message to \(target), but \(target) has not received it. Send it again if it "
            + "matters."
    }

    package static func stripped(_ verb: String) -> String {
        "Your \(verb) text was not passed on: the server could have read it. "
            + "This notice is shown once for each command."
    }

    package static func refusedText(_ verb: String) -> String {
        "Not done: messages are protected here, and the server could read this text of \(verb). Your operator has "
            + "chosen to refuse such texts."
    }

    package static func roomNotProtected(_ room: String) -> String {
        "Your private messages are encrypted, but \(room) is not: the server can read what you write there. An operator can "
            + "protect the room for everybody in it. This notice is shown once for each room."
    }

    package static func notCommitted(target: String) -> String {
        "Not sent: the gateway could not store your message to \(target). Ask the operator to look at the disk."
    }

    package static let tooManyPending =
        "Not sent: too many of your messages are still waiting for the server. Try again in a moment."

    /// The answer to SASL EXTERNAL.
    package static let noCertificates =
        "SASL EXTERNAL is not available here: the gateway ends TLS, so the server cannot see your certificate. Use PLAIN."

    /// The answer of a sidecar to SASL EXTERNAL.
    package static let noOwnCertificate =
        "SASL EXTERNAL is not available here: your sidecar has no certificate of yours. Start it with --certificate, or use "
        + "PLAIN."

    package static let messageTooLong = "Not sent: the message is too long."

    /// Of a message of several lines.
    package static let tooManyBytes = "Not sent: the message is too long. Send it in parts."

    /// Of a message of several lines.
    package static let tooManyLines = "Not sent: the message has too many lines. Send it in parts."

    /// Of a message of several lines.
    package static let otherTarget = "Not sent: all lines of a message must have the same recipient."

    /// Of a message of several lines.
    package static let invalidBatch =
        "Not sent: a message of several lines needs one recipient and a text, must be ended before the next one begins, and "
        + "cannot contain /me and other CTCP."

    package static func filtered(target: String) -> String {
        "Not sent: the server refused the encrypted message to \(target). A filter of the server may block it. "
            + "It was not sent unencrypted either."
    }

    package static func expired(target: String) -> String {
        "Your message to \(target) was not sent: \(target) did not come back in time."
    }

    /// The cause of a dead request, for reports.
    package static let droppedReason = "dropped by an operator"

    package static func dropped(target: String) -> String {
        "Not sent: an operator of the gateway has dropped your message to \(target)."
    }

    package static func expired(_ count: Int, target: String) -> String {
        "Not sent: \(count == 1 ? "a message" : "\(count) messages") of yours to \(target) waited for too long. Send "
            + "\(count == 1 ? "it" : "them") again if it matters."
    }

    package static let backendUnreachable =
        "The chat server does not answer. You stay connected: Pawl keeps trying to reach it, and your messages wait."
    package static let backendBack = "The chat server is back. Your waiting messages are being sent."
    package static let registrationRefused = "the chat server is back, but it does not let you in again."
    package static let loginRefused = "the chat server is back, but your login could not be repeated. Connect again."
    package static let loginNotRepeatable =
        "The connection to the chat server was lost, and Pawl cannot repeat your kind of login. Connect again."

    package static func backendLost(target: String) -> String {
        "Perhaps not sent: the connection to the chat server was lost before it confirmed your message to \(target). "
            + "Ask \(target) whether it arrived."
    }

    /// Sent if the gateway is stopped while messages wait.
    package static let stopping =
        "The gateway is being restarted. Messages that you have written are still being sent; new ones are not. "
        + "Connect again in a moment."

    package static func notSentAtStop(_ count: Int, target: String) -> String {
        "Not sent: the gateway was stopped before it could send \(messages(count)) of yours to \(target). Send "
            + "\(count == 1 ? "it" : "them") again."
    }

    package static func notSentInOutage(_ count: Int, target: String) -> String {
        "Not sent: the connection to the chat server did not come back in time for \(messages(count)) of yours to "
            + "\(target). Send \(count == 1 ? "it" : "them") again."
    }

    package static func perhapsSentAtStop(_ count: Int, target: String) -> String {
        "Perhaps not sent: the gateway was stopped before the server confirmed \(messages(count)) of yours to \(target)."
    }

    package static func keptAtStop(_ count: Int, target: String) -> String {
        "The gateway was stopped. It has stored \(messages(count)) of yours to \(target), and sends "
            + "\(count == 1 ? "it" : "them") when you connect again."
    }

    /// Sent to a client that had written faster than its messages could be sent.
    package static let unreadAtStop =
        "You have written faster than your messages can be sent, and the gateway was stopped before it had read all of "
        + "them. Messages that no notice counts were not sent either."

    /// A text about the gateway in the words of a sidecar.
    package static func ofSidecar(_ text: String) -> String {
        text.replacing("The gateway", with: "Your sidecar").replacing("the gateway", with: "your sidecar")
    }

    private static func messages(_ count: Int) -> String { count == 1 ? "1 message" : "\(count) messages" }

    /// The cause of a request that ended with its connection, for reports.
    package static let connectionEnded = "the connection ended before the backend had received it"

    /// A readable line before the first envelope of a conversation, for readers without a gateway.
    ///
    /// It contains no `:` and no Base64.
    package static func announcement() -> String {
        "? This conversation is encrypted by a Pawl gateway. If you can read this line, you are connected without it "
            + "and will see unreadable text. Connect through the gateway, or ask the sender."
    }

    // MARK: People's own devices

    package static let otherDevice =
        "Not sent: the message was sealed by another device than the one of this connection."

    package static let notOwnDevice =
        "Not sent: the message was encrypted by a device that is not one of yours, or has been removed. Prove your "
        + "device again."

    package static func forOtherDevice(from nick: String) -> String {
        "\(nick) has sent an encrypted message to another device of yours. This client cannot read such messages. This "
            + "notice is shown once."
    }

    /// Shown in place of a message of a JSON backend that is sealed for a person's own device.
    package static func forOwnDevice(from sender: String?) -> String {
        "[\(sender ?? "Somebody") has sent an encrypted message to another device of yours. This app cannot read it.]"
    }

    package static let frontFound =
        "The gateway of this network has your keys: your device and those of others can find each other there."

    package static func frontRefused(_ reason: String) -> String {
        "The gateway of this network refused a request of your sidecar: \(reason)."
    }

    // MARK: Sidecars

    package static func keysExchanged(_ nick: String) -> String {
        "Keys were exchanged with \(nick). From now on your messages to each other are end-to-end encrypted. To be sure "
            + "that nobody intercepts them, compare your keys: \(control) verify \(nick)"
    }

    package static func roomProtected(_ room: String, readers: Int) -> String {
        "What you say in \(room) is end-to-end encrypted from now on, for \(readers) others. People who join without a "
            + "sidecar cannot read it."
    }

    package static func roomOutsiders(_ room: String, _ nicks: [String], isProtected: Bool) -> String {
        "These members of \(room) cannot read your messages: \(list(nicks, limit: 10))."
            + (isProtected ? " " + wayBack(room) : "")
    }

    /// The names, separated by commas; above the limit the rest is only counted.
    private static func list(_ nicks: [String], limit: Int) -> String {
        let names = nicks.prefix(limit).joined(separator: ", ")
        return nicks.count > limit ? "\(names) and \(nicks.count - limit) more" : names
    }

    package static func wayBack(_ room: String) -> String {
        "You have protected \(room). To send plain text there again: \(control) plain \(room)"
    }

    // How own messages go, when it has changed

    package static func goesSealed(_ nick: String, isVerified: Bool) -> String {
        "Your messages to \(nick) are end-to-end encrypted"
            + (isVerified ? ", and you have compared your keys." : ".")
    }

    package static func goesPlain(_ nick: String, hasFront: Bool) -> String {
        "Your messages to \(nick) are not end-to-end encrypted: no keys of theirs are known. "
            + (hasFront ? "The gateway of this network can read them." : "The server can read them.")
            + " To send them nothing until there are keys: \(control) plain \(nick) off"
    }

    package static func waitsForKeys(_ nick: String) -> String {
        "Your message to \(nick) waits until your devices have agreed on keys, for some seconds."
    }

    package static func roomGoesPlain(_ room: String, _ nicks: [String]) -> String {
        "What you say in \(room) is not encrypted: no keys are known of \(list(nicks, limit: 5)). To encrypt it for the others "
            + "anyway: \(control) protect \(room)"
    }

    /// Follows ``withheld(from:)`` once, if keys of that person are known.
    package static func stoppedSidecar(_ nick: String) -> String {
        "Either \(nick) is connected without their sidecar, and sees your messages as unreadable text, or somebody else uses "
            + "the name. Ask \(nick), by another way than this chat, to start it. To write to them in plain text: \(control) "
            + "forget \(nick)"
    }

    /// The same as ``notCommitted(target:)``, in a sidecar.
    package static func notStored(target: String) -> String {
        "Not sent: your sidecar could not store your message to \(target). Look at the disk of its machine."
    }

    /// The refusal of a message to a person, after `protect` with a nick.
    package static func plainRefused(_ target: String) -> String {
        "Not sent: you refuse plain text to \(target), and no keys of theirs are known. To allow it again: "
            + "\(control) plain \(target) on"
    }

    package static func roomSealed(_ room: String, readers: Int, isProtected: Bool) -> String {
        "What you say in \(room) is end-to-end encrypted for \(readers) others, "
            + (isProtected
                ? "also if people without a sidecar join: you have protected this room."
                : "as long as everybody here has a sidecar. To keep it encrypted if others join: \(control) protect "
                    + room)
    }

    package static func roomPlain(_ room: String, _ nicks: [String]) -> String {
        let reason = nicks.isEmpty ? "" : ": no keys are known of \(list(nicks, limit: 10))"
        return
            "What you say in \(room) is not encrypted any more\(reason). To encrypt it anyway: \(control) protect "
            + room
    }

    package static func roomJustPlain(_ room: String) -> String {
        "Not sent: messages in \(room) have just stopped being encrypted; a notice in the room says why. To send this "
            + "one unencrypted, send it again in a few seconds."
    }

    package static func withheld(from source: String, inRoom room: String) -> String {
        "A message under the name \(source) was withheld: it was not encrypted. \(wayBack(room))"
    }

    package static func asks(_ nick: String, _ act: RoomRequest.Act, _ room: String) -> String {
        switch act {
        case .protect:
            "\(nick) asks you to protect \(room): then none of your messages there is sent unencrypted, and people "
                + "without a sidecar cannot read them. To agree: \(control) protect \(room)"
        case .plain:
            "\(nick) asks you to protect \(room) no longer: then your messages there are sent unencrypted while people "
                + "without a sidecar are in it, and the server can read them. To agree: \(control) plain "
                + room
        }
    }

    package static func requestElsewhere(_ nick: String, _ room: String) -> String {
        "\(nick) sent a request about \(room), but for a network of another name. Your sidecar ignored it."
    }

    /// The first words of the announcements below, after the marker of envelopes. Sidecars match them on receipt.
    ///
    /// The announcements contain no `:`.
    package static let plainAnnouncementStart = "? Not encrypted from now on"
    package static let sealedAnnouncementStart = "? Encrypted"

    /// The line for everybody in a room before the first plaintext of a member whose messages were sealed.
    package static func plainAnnouncement(_ nicks: [String]) -> String {
        let reason = nicks.isEmpty ? "" : ", because \(list(nicks, limit: 3)) cannot read encrypted messages"
        return plainAnnouncementStart + " are messages in this room\(reason). Members with a Pawl sidecar can keep "
            + "theirs encrypted with the command /msg *pawl protect and the name of the room."
    }

    /// The line for people without keys in a room in which messages are sealed for others.
    package static func sealedAnnouncement(_ nicks: [String]) -> String {
        sealedAnnouncementStart + " end-to-end messages are sent in this room. You will see unreadable text, "
            + "\(list(nicks, limit: 3)), unless your client runs behind a Pawl sidecar. Ask the members how to get "
            + "one, or ask them to send plain text."
    }

    package static let adopted = "The list of your devices has changed. See: \(control) status."
    package static func removedDevices(_ nick: String) -> String {
        "\(nick) has removed a device. Its messages are no longer accepted, and it can read none of yours from now on."
    }

    package static let revoked =
        "Another device of yours has removed this one. It can read no new messages, and its messages are no longer "
        + "accepted."

    package static func changedKeys(_ nick: String) -> String {
        "\(nick) shows keys that are not the ones you know. Either they have set up Pawl again, or somebody else uses "
            + "their name. Nothing is sent to them until you check and accept the new keys: \(control) verify "
            + "\(nick), \(control) accept \(nick)"
    }

    /// The notice about a device list that forks from the known one.
    package static func forkedList(of name: String, shownBy nick: String) -> String {
        let source = name == nick ? "\(nick) shows" : "\(nick), with the keys of \(name), shows"
        return "\(source) another version of the list of their devices than the one you know: one of their devices may "
            + "be stolen. The safety number is the same for both. Nothing is sent to \(name) until you decide: \(control) "
            + "verify \(name) shows both versions. Ask \(name), by another way than this chat, which devices are theirs."
    }

    /// The line for a peer whose keys are not the pinned ones.
    package static let newKeysAnnouncement =
        "? Your encryption keys are not those that I know of you, so I cannot see your encrypted messages until I "
        + "accept the new ones. Tell me, by another way than this chat, whether you have new keys."

    package static func otherName(_ nick: String, of name: String) -> String {
        "\(nick) writes with the keys of \(name), the name by which you know this person."
    }

    package static func crossed(_ nick: String) -> String {
        "An encrypted message from \(nick) could not be opened: your devices were still agreeing on keys. Ask \(nick) "
            + "to send it again."
    }

    package static let frontMissing =
        "This network had a gateway that knew your keys, and it does not answer now: it was removed, or somebody "
        + "between you and it hides it. Messages to people whose keys you have stay encrypted; first messages to "
        + "others go out in plain text."

    package static func frontGone(_ target: String) -> String {
        "Not sent: you wrote this while the connection was lost, and the gateway of this network has not come back. "
            + "Without it your message to \(target) would go out in plain text. If it may, write it again."
    }

    package static func sealedFor(_ nick: String, name: String) -> String {
        "Your messages to \(nick) are encrypted for the keys of \(name), the name by which you know this person."
    }

    package static func noKeys(_ target: String) -> String {
        "Not sent: your devices and those of \(target) have not agreed on keys yet. Those of \(target) are offline, "
            + "do not answer, or use an older version of Pawl. Try again later."
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
