// What a person decides about a room of theirs, and asks the others in it for.

import ArgumentParser
import Devices
import Protection
import Reports

/// `pawl sidecar protect`
struct SidecarProtect: AdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "protect",
        abstract: "Keep a room end-to-end encrypted whoever joins, and ask the others in it for the same.",
        discussion: """
            Without this, a room is encrypted while everybody in it has a sidecar. The members with a sidecar read your \
            request in the room; each of them follows with the same command. pawl sidecar plain is the way back.
            """)
    @Argument(help: "The room, with its prefix; in a shell between quotes.") var room: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        _ = try gateway.peers()
        let found = try await gateway.room(joined: room)
        let words = "protect \(found.report.name)"
        guard gateway.confirmations.accept(confirm, for: words) else {
            let outsiders = found.report.outsiders
            let cannot =
                outsiders.isEmpty
                ? "Everybody who is there now can read."
                : "There now, and cannot read: \(outsiders.joined(separator: ", "))."
            let question = """
                From now on what you say in \(room) is sent end-to-end encrypted only, and plain text under the name of \
                somebody with a sidecar is withheld. \(cannot) \(found.report.readers) others with a sidecar are asked \
                to do the same.
                """
            return gateway.question(question, words)
        }
        try await gateway.ask(.protect, found)
        return .text(
            "You protect \(room). \(found.report.readers) others are asked to do the same. To end it: pawl sidecar plain."
        )
    }
}

/// `pawl sidecar plain`
struct SidecarPlain: AdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "plain",
        abstract: "Protect a room no longer, and ask the others in it for the same. It is audited.",
        discussion: """
            The room is then encrypted while everybody in it has a sidecar. Members who go on protecting it are shown no \
            plain text of yours.
            """)
    @Argument(help: "The room, with its prefix; in a shell between quotes.") var room: String
    @Option(help: "The token that the sidecar gave for this.") var confirm: String?
    @OptionGroup var common: CommonOptions

    func answer(_ gateway: Gateway) async throws -> AdminAnswer {
        _ = try gateway.peers()
        let found = try await gateway.room(joined: room)
        guard found.report.isProtected else {
            throw AdminFailure("You do not protect \(room): plain text goes there while somebody has no sidecar.")
        }
        let words = "plain \(found.report.name)"
        guard gateway.confirmations.accept(confirm, for: words) else {
            let question = """
                What you say in \(room) then goes out in plain text while somebody without a sidecar is there. Others \
                who protect it are asked to end that as well; until they do, they are shown no plain text of yours.
                """
            return gateway.question(question, words)
        }
        try await gateway.ask(.plain, found)
        return .text("You protect \(room) no longer. The others with a sidecar are asked to do the same.")
    }
}
