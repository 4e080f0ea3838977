// Assembles the JSON side of a gateway.

import DeviceDirectory
import Devices
import DoubleRatchet
import HTTPServer
import JSONGateway
import Logging
import NIOCore
import NIOPosix
import NIOSupport
import Outbox
import PawlConfiguration
import Protection
import Reports
import RequestQueue
import RequestQueueClient
import StorePort
import Vault

extension JSONFront {
    static var chat: ChatProtocol { .json }
    static var tlsProtocols: [String] { HTTPServer.protocols }

    static func checkFiles(_ configuration: PawlConfiguration) throws {
        _ = try JSONBackend.mapping(configuration)
        _ = try PushHook.client(configuration.push)
    }

    static func gateway(
        _ parts: FrontParts, _ directory: DirectoryCache
    ) throws -> (front: any ChatFront, server: any ChatServer) {
        let (configuration, tables) = (parts.configuration, parts.tables)
        let environment = try JSONBackend.environment(
            configuration, tables, directory, parts.store, sealer: parts.sealer)
        let held = try parts.store.records(.hold).compactMap { row in
            if case .account(let account)? = RequestScope(name: row.name) { account } else { nil }
        }
        for account in held { _ = tables.outbox.gate.hold(.account(account)) }
        var changes: [StoreChange] = []
        var participants = try JSONParticipants(
            network: parts.network, sealer: parts.sealer, store: parts.store, latches: tables.latches,
            traces: tables.outbox.traces, writes: environment.writes,
            queue: JSONBackend.queueSettings(configuration),
            historyRetention: configuration.history.retention.milliseconds, held: held, now: SystemClock.now(),
            random: SystemRandomSource(), directory: directory, push: environment.push,
            changes: &changes)
        participants.vault.earlierNetworks = parts.earlierNetworks
        let credentials = JSONBackend.credentials(
            configuration, environment, stored: participants.storedSessions, parts.sealer)
        for account in credentials.accounts { participants.queue.setSession(account, present: true) }
        try parts.begin(changes, by: participants.store.loadedEpochs, participants.warnings)
        let failed = parts.failed
        let thread = JSONFront.Thread(
            participants: participants, clock: SystemClock.now,
            onFailure: { failure, jobs in
                let changes = jobs.flatMap(\.records)
                failed(failure, changes)
                environment.observations.giveBack(changes)
            }, onUnknown: parts.endProcess)
        let push = try environment.push.map { notices in
            try PushHook(configuration.push, notices, group: parts.group, logger: parts.logger) { notice in
                let job = MailJob(
                    connection: ConnectionID(0), id: 0, account: .own, device: notice.device,
                    request: .dropPushToken(notice.token))
                thread.submit([.mail(job)])
            }
        }
        var services = HTTPServices(
            environment: environment, budget: ByteBudget(limit: configuration.limits.collectedBytes),
            clock: SystemClock.now, downstream: parts.downstream, upstream: parts.upstream)
        services.limits.compressAbove = configuration.limits.compressAbove
        services.controlSocket = configuration.controlPlane.socket.map {
            ControlSocketOptions(path: $0, mode: configuration.controlPlane.socketMode.bits)
        }
        services.submit = { thread.submit($0) }
        services.register = { thread.register($0, as: $1) }
        services.unregister = { thread.unregister($0) }
        services.upstreamFailed = parts.upstreamFailed
        services.defect = { [logger = parts.logger] in logger.error("\($0)") }
        let pools = UpstreamPools(services: services, group: parts.group)
        guard let sender = pools.sender(on: parts.group.next()) else { preconditionFailure("every loop has a pool") }
        let backend = JSONBackend(
            configuration, environment, parts.store, thread, credentials: credentials, sender: sender,
            meters: services.meters, budget: services.budget, push: push)
        backend.serve(&services)
        let server = HTTPServer(services: services, pools: pools) { UInt64.random(in: 1 ... .max) }
        return (JSONFront(thread: thread, backend: backend, gate: tables.outbox.gate), server)
    }

    /// Returns the texts for people behind an HTTP backend, who can run no sidecar.
    static func texts(_ configuration: PawlConfiguration) -> NoticeTexts {
        var texts = NoticeTexts(configuration.refusal)
        if configuration.refusal.isRequiredStandard { texts.required = NoticeTexts.http.required }
        if configuration.refusal.isRoomStandard {
            (texts.room, texts.roomOf) = (NoticeTexts.http.room, NoticeTexts.http.roomOf)
        }
        return texts
    }
}
