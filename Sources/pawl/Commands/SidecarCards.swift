// Contact cards: shows the own one, and verifies a person by theirs.

import ArgumentParser
import Devices
import IRCGateway
import Protection

/// `pawl sidecar card`
struct SidecarCard: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "card", abstract: "Show your contact card as a QR code and as text.",
        discussion: """
            The other person scans it from your screen with an app on PawlMessenger, or with any app that reads QR codes, \
            and gives its text to pawl sidecar scan. A card counts as much as the way on which it came: do not send it over \
            the network whose messages it verifies.
            """)
    @Flag(help: "No QR code.") var plain = false
    @Flag(help: "Plain QR code without colours (default if the output is not a terminal).") var uncoloured = false
    @OptionGroup var common: CommonOptions

    struct Report: Codable {
        var card: String
    }

    func run() async throws { try await SidecarVerify.perform(common) }

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        guard let uri = sidecar.card()?.uri else {
            throw AdminFailure(.noClient, "Connect a client to this sidecar first: the card has your nick.")
        }
        if common.json { return try .json(Report(card: uri)) }
        let code = plain ? nil : CardCode.terminal(uri, coloured: !uncoloured)
        // The code last: it fills a small screen.
        return .picture([uri, code].compactMap(\.self).joined(separator: "\n"))
    }
}

/// `pawl sidecar scan`
struct SidecarScan: SidecarAdminCommand {
    static let configuration = CommandConfiguration(
        commandName: "scan", abstract: "Verify someone by the contact card that you have scanned from their screen.",
        discussion: """
            The card is the text in the QR code that pawl sidecar verify, pawl sidecar card or an app on PawlMessenger shows: \
            pawl:contact?... In a shell write it between quotes. Without NICK the person is the one whose keys the card has.
            """)
    @Argument(help: "The text of the contact card: pawl:contact?...") var card: String
    @Argument(help: "The nick or account of the person, if it is not the one in the card.") var nick: String?
    @OptionGroup var common: CommonOptions

    func answer(_ sidecar: Sidecar) async throws -> AdminAnswer {
        let card = try SidecarScan.read(card)
        let peer: Peer
        if let nick {
            peer = try sidecar.peer(named: nick)
        } else if let named = try? sidecar.peer(named: card.name) {
            peer = named
        } else if let known = sidecar.peers.all.first(where: { $0.deviceList.root == card.root }) {
            peer = known
        } else {
            guard sidecar.peers.own?.deviceList.root != card.root else {
                throw AdminFailure(.cardDiffers, "This is your own card. Scan the one on the other person's screen.")
            }
            throw AdminFailure(
                .noKeys,
                "No keys of \(Printable.line(card.name)) are known. Write to each other, wait until both sides report that keys "
                    + "were exchanged, then scan the card again.")
        }
        return try await sidecar.compare(card, with: peer, calledBy: peer.name.displayName, json: common.json)
    }

    /// - Throws: ``AdminFailure`` if the text is not a whole card.
    static func read(_ text: String) throws -> CardForm {
        guard let card = try? CardForm(uri: text) else {
            throw AdminFailure(.notACard, "This is no contact card, or a part of it is missing. Copy the whole text.")
        }
        return card
    }
}

extension Sidecar {
    /// Verifies a peer if a card has the known keys.
    ///
    /// - Throws: ``AdminFailure`` that says what differs; then nothing has changed.
    func compare(_ card: CardForm, with peer: Peer, calledBy nick: String, json: Bool) async throws -> AdminAnswer {
        guard !peer.isForked else { throw SidecarVerify.fork(nick) }
        if let offered = peer.offered {
            guard offered.root == card.root else {
                throw AdminFailure(
                    .keysChanged,
                    "\(nick) shows new keys, and the card does not have them. Do not accept them before you have asked "
                        + "\(nick) by other means than this network.")
            }
            throw AdminFailure(
                .keysChanged,
                "The card has the new keys of \(nick). Accept them (pawl sidecar accept \(nick)), then give the card again."
            )
        }
        guard peer.deviceList.root == card.root else {
            throw AdminFailure(
                .cardDiffers,
                "The card does not have the keys that are known for \(nick). Someone may intercept your messages, or the card "
                    + "is an old one or somebody else's (its name: \(Printable.line(card.name))). Nothing has changed.")
        }
        try await decide(.confirm(card.root), about: peer.name)
        guard peers[peer.name]?.isVerified == true else {
            throw AdminFailure(.keysChanged, "The keys of \(nick) have just changed. Give the card again.")
        }
        return try .done(
            "The keys of \(nick) are verified. Messages from them are marked [e2e verified].", json: json)
    }
}
