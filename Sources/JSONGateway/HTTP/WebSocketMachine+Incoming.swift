// Messages of the backend over a WebSocket to the client.

import Envelope
import JSONCodec
package import NIOCore
package import Protection
import Reports
package import Vault

extension WebSocketMachine {
    package mutating func receivedFromBackend(
        _ bytes: ByteBuffer, _ isText: Bool, _ now: Timestamp, _ actions: inout [WebSocketAction]
    ) {
        guard toClient.count < Self.waitingLimit else {
            return actions.append(.close(code: 1008, reason: "Too many messages wait for the gateway."))
        }
        // Messages are not read if nothing can have to be opened.
        guard protects || calls.isInUse || environment.mapping.logsInByFrames else {
            return toClient.append(Slot(ticket: environment.nextTicket(), message: (bytes, isText), isReady: true))
        }
        // Some clients read JSON in binary messages too.
        var document = try? JSONDocument(bytes)
        // Only the gateway answers calls. A client might read an unreadable message as an answer.
        guard document.map({ !InBandCall.isReserved($0) }) ?? !(isText && calls.isInUse) else {
            return environment.tally.add(.unknownFromBackend)
        }
        let ticket = environment.nextTicket()
        var frame: FrameRoute?
        do {
            guard let whole = document else { throw MessageFault.noMessage }
            frame = try environment.mapping.knownFrame(for: whole, .fromBackend)
            if let frame { document = try whole.parsing(for: frame.shapes) }
        } catch {
            if environment.mapping.readsBackendFrames, !environment.passesUnread(to: account) {
                environment.tally.add(.withheld)
                return notify(.answerUnreadable, nil, &actions)
            }
        }
        if let document, let login = frame?.login, !logIn(login, document, now, &actions), environment.isProtecting {
            environment.tally.add(.withheld)
            return notify(.answerUnreadable, nil, &actions)
        }
        if isGated, frame?.label != .passthrough {
            environment.tally.add(.withheld)
            return notify(.answerUnreadable, nil, &actions)
        }
        guard let document, let frame, !frame.shapes.isEmpty, protects || calls.isInUse else {
            toClient.append(Slot(ticket: ticket, message: (bytes, isText), isReady: true))
            return
        }
        var incoming = IncomingMessages(
            document, frame.shapes, label: .sync, reader: account, readsEnvelopes: provenDevice != nil,
            directory: environment.directory)
        toClient.append(Slot(ticket: ticket, message: (bytes, isText)))
        for job in incoming.jobs(connection, environment) { actions.append(.submit(.open(job))) }
        guard !incoming.isComplete else { return finish(ticket, incoming, &actions) }
        opening.append((ticket, incoming))
    }

    package mutating func opened(_ ticket: UInt64, _ outcomes: [OpenOutcome], _ actions: inout [WebSocketAction]) {
        for index in opening.indices where opening[index].messages.take(outcomes, for: ticket) {
            guard opening[index].messages.isComplete else { return }
            let (slot, incoming) = opening.remove(at: index)
            return finish(slot, incoming, &actions)
        }
        unexpected("opened", &actions)
    }

    private mutating func finish(
        _ ticket: UInt64, _ incoming: IncomingMessages, _ actions: inout [WebSocketAction]
    ) {
        do {
            let opened = try incoming.opened(environment)
            settle(ticket, in: \.toClient, opened.isCopy ? nil : opened.bytes)
        } catch {
            // A message without the required changes must not reach the client.
            settle(ticket, in: \.toClient, nil)
            notify(.answerUnreadable, nil, &actions)
        }
    }
}
