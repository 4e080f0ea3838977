// Assembles the IRC side of a gateway or a sidecar.

import CommitLoop
import DeviceDirectory
import Devices
import DoubleRatchet
import Envelope
import IRCCodec
import IRCGateway
import IRCServer
import Logging
import NIOSupport
import Outbox
import PawlConfiguration
import Protection
import Reports
import SQLiteStore
import StorePort
import Vault

extension IRCFront {
    static var chat: ChatProtocol { .irc }

    static func gateway(
        _ parts: FrontParts, _ directory: DirectoryCache
    ) throws -> (front: any ChatFront, server: any ChatServer) {
        try make(parts, .front, .front(directory))
    }

    static func sidecar(_ parts: FrontParts) throws -> (parts: RoleParts, front: any ChatFront, server: any ChatServer)
    {
        let peers = PeerCache()
        let (front, server) = try make(parts, .sidecar, .sidecar(peers))
        return (.sidecar(peers, front), front, server)
    }

    private static func make(_ parts: FrontParts, _ role: Role, _ keys: IRCRole) throws -> (IRCFront, IRCServer) {
        let (configuration, tables, logger) = (parts.configuration, parts.tables, parts.logger)
        let environment = IRCEnvironment(
            settings: settings(configuration, as: role, network: parts.network), policies: tables.policies,
            latches: tables.latches, tally: tables.tally, requests: tables.outbox, role: keys)
        let journal = try DeliveryJournal(directory: configuration.data)
        if let warning = journal.warning { logger.warning("\(warning)") }
        var changes: [StoreChange] = []
        var participants = try IRCParticipants(
            network: parts.network, carrier: .irc, sealer: parts.sealer, store: parts.store,
            latches: environment.latches, rooms: environment.rooms, openedMessages: environment.opened,
            outbox: environment.requests, requestAge: configuration.limits.requestAge.milliseconds,
            pendingLimit: configuration.limits.pendingRequestsPerAccount, now: SystemClock.now(),
            random: SystemRandomSource(), role: environment.role,
            wasDelivered: { journal.contains($0) }, changes: &changes)
        participants.vault.earlierNetworks = parts.earlierNetworks
        participants.messageLines = configuration.limits.messageFragments
        participants.reportUnreadable { session in
            tables.tally.add(.unreadableSessions)
            logger.error(
                """
                The session with the device \(String(session.peer.value, radix: 16)) cannot be read. Messages to this \
                device are not sealed until keys are exchanged again, which happens by itself.
                """)
        }
        participants.onOtherRole = { logger.error("A job for \($0) was refused: this gateway has another role.") }
        try parts.begin(changes, by: participants.store.loadedEpochs, participants.warnings)
        let failed = parts.failed
        let thread = IRCFront.Thread(
            participants: participants, clock: SystemClock.now,
            onFailure: { failure, jobs in failed(failure, jobs.flatMap(\.records)) }, onUnknown: parts.endProcess)
        var services = ConnectionServices(
            environment: environment, submit: { thread.submit($0) }, register: { thread.register($0, as: $1) },
            unregister: { thread.unregister($0) }, markDelivered: { journal.mark($0) }, clock: SystemClock.now,
            downstream: parts.downstream, upstream: parts.upstream)
        services.upstreamFailed = parts.upstreamFailed
        let chat = SidecarChat()
        services.command = { connection, text in
            guard !chat.take(text, from: connection) else { return }
            let busy = IRCReply.sidecar(.said(["Not done: too many of your commands wait. Write again in a moment."]))
            thread.send([AddressedReply(connection: connection, reply: busy)])
        }
        let server = IRCServer(services: services, group: parts.group) { UInt64.random(in: 1 ... .max) }
        let front = IRCFront(
            thread: thread, environment: environment, store: parts.store, role: role, chat: chat)
        return (front, server)
    }

    /// Returns the settings of a configuration that a reload may change.
    ///
    /// - Parameter network: the name that the store holds.
    static func settings(_ configuration: PawlConfiguration, as role: Role, network: String) -> IRCSettings {
        var settings = IRCSettings(
            network: network, heldLines: configuration.limits.heldLines,
            pendingRequests: configuration.limits.pendingRequestsPerAccount,
            outagePatience: configuration.upstream.outagePatience.milliseconds,
            asksForVersion: configuration.detection.askVersion, marks: ProtectionMarks(configuration.sidecar.marks))
        settings.exemptions = (configuration.services + configuration.bots).map { pattern in
            switch pattern.origin {
            case .server(let mask): Exemption(nick: pattern.nick, proof: .server(mask))
            case .host(let mask): Exemption(nick: pattern.nick, proof: .host(mask))
            }
        }
        settings.texts =
            switch role {
            case .front: NoticeTexts(configuration.refusal)
            case .sidecar: .sidecar
            }
        settings.commandTexts = configuration.commands
        settings.terminatesStartTLS = configuration.starttls == .terminate
        switch role {
        case .front: settings.visibility.hidesExternal = configuration.clientCertificates == .ignore
        case .sidecar:
            // The certificate is the person's own, so that the server sees it as without a sidecar.
            settings.visibility.hidesExternal = configuration.upstream.tls.identity == nil
        }
        settings.visibility.hidesStartTLS = configuration.starttls == .hide
        settings.visibility.stsPort = configuration.listen.first { $0.isEncrypted && !$0.scheme.isWebSocket }?.port
        let flood = configuration.upstream.flood
        settings.flood = Pacer.Limit(
            burst: Double(flood.burst), linesPerSecond: flood.linesPerSecond,
            bytesPerSecond: Double(flood.bytesPerSecond))
        settings.multiline = MultilineLimits(
            messageLines: configuration.limits.messageFragments, devices: role == .sidecar)
        settings.fragments.inactivity = configuration.limits.fragmentTimeout.milliseconds * 1_000_000
        return settings
    }
}

extension ProtectionMarks {
    fileprivate init(_ marks: PawlConfiguration.Sidecar.Marks) {
        self =
            switch marks {
            case .text: .text
            case .tags: .tags
            case .off: .off
            }
    }
}
