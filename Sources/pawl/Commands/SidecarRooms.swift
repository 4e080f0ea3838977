// Commands that protect a room or end its protection, and ask the other members to do the same. For a person the same
// commands refuse or allow plain text.

import ArgumentParser
import Devices
import Protection
import Reports

/// `pawl sidecar protect`
struct SidecarProtect: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "protect",
        abstract:
            "Keep a room encrypted whoever joins, and ask the others to do the same; or refuse plain text to someone.",
        discussion: """
            Without this, a room is encrypted while everyone in it has a sidecar. The members with a sidecar see your \
            request in the room, and each can follow it with the same command. To undo it: pawl sidecar plain.

            With a nick, nothing is sent to that person in plain text, and their plain text is withheld, also while no \
            keys of them are known.
            """)
    @Argument(help: "The room, with its prefix and in a shell between quotes; or a nick.") var room: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        guard Sidecar.isRoom(room) else {
            try await sidecar.demandProtection(of: room)
            return try .done(
                "Nothing is sent to \(room) in plain text any more, and theirs is withheld. To end it: pawl sidecar plain \(room)",
                json: common.json)
        }
        let found = try await sidecar.room(joined: room)
        let words = "protect \(found.report.name)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            let outsiders = found.report.outsiders
            let cannot =
                outsiders.isEmpty
                ? "Everyone who is there now can read."
                : "There now, and cannot read: \(outsiders.joined(separator: ", "))."
            let question = """
                From now on your messages in \(room) are sent end-to-end encrypted only, and plain text under the name \
                of someone with a sidecar is withheld. \(cannot) \(found.report.readers) others with a sidecar are asked \
                to do the same.
                """
            return sidecar.gateway.question(question, words)
        }
        try await sidecar.ask(.protect, found)
        return try .done(
            "You protect \(room). \(found.report.readers) others are asked to do the same. To end it: pawl sidecar plain.",
            json: common.json)
    }
}

/// `pawl sidecar plain`
struct SidecarPlain: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "plain",
        abstract: "Stop protecting a room, and ask the others in it to do the same; or allow plain text to someone.",
        discussion: """
            The room is then encrypted while everyone in it has a sidecar. Members who still protect it do not see your \
            plain text. With a nick, plain text to that person is allowed again while no keys of them are known. The act \
            is audited.
            """)
    @Argument(help: "The room, with its prefix and in a shell between quotes; or a nick.") var room: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        guard Sidecar.isRoom(room) else { return try person(room, sidecar) }
        let found = try await sidecar.room(joined: room)
        guard found.report.isProtected else {
            throw AdminFailure(
                .notProtected, "You do not protect \(room): it gets plain text while a member has no sidecar.")
        }
        let words = "plain \(found.report.name)"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            let question = """
                Your messages in \(room) are then sent in plain text while someone without a sidecar is there. Others \
                who protect it are asked to stop as well; until they do, they do not see your plain text.
                """
            return sidecar.gateway.question(question, words)
        }
        try await sidecar.ask(.plain, found)
        return try .done(
            "You no longer protect \(room). The others with a sidecar are asked to do the same.", json: common.json)
    }

    private func person(_ nick: String, _ sidecar: Sidecar) throws -> AdminAnswer {
        guard (try? sidecar.peer(named: nick)) == nil else {
            throw AdminFailure(
                .keysKnown,
                "The keys of \(nick) are known, so your messages to them are always encrypted. To send plain text again, "
                    + "forget their keys: pawl sidecar forget \(nick)")
        }
        guard sidecar.demandsProtection(of: nick) else {
            throw AdminFailure(.notProtected, "Plain text to \(nick) is allowed already: no keys of them are known.")
        }
        let words = "plain \(nick.lowercased())"
        guard sidecar.gateway.confirmations.accept(confirm, for: words) else {
            return sidecar.gateway.question(
                "Your messages to \(nick) are then sent in plain text until keys are exchanged; the server can read them.",
                words)
        }
        try sidecar.allowPlaintext(to: nick)
        return try .done("Plain text to \(nick) is allowed.", json: common.json)
    }
}
