import CallSignalling
import Envelope
import Protection

/// Devices with their machines, a clock, and a network that does what the test says.
final class CallWorld {
    final class Device {
        let user: String
        let id: DeviceID
        var machine: CallMachine<String>
        /// What the app was told: the payloads in their order, and ends.
        var log: [String] = []
        var dropped: [CallDrop] = []

        init(_ user: String, _ id: UInt64) {
            (self.user, self.id) = (user, DeviceID(id))
            machine = CallMachine(own: user)
        }
    }

    /// A message on its way.
    struct Transit {
        var from: Device
        var to: Device
        var message: CallMessage<String>
    }

    static let route = CallRoute("0a1b2c3d-0000-4000-8000-00000000000a")
    var now = Timestamp(monotonic: 1_000_000_000, wall: 1_700_000_000_000)
    var devices: [Device] = []
    var network: [Transit] = []
    /// The role of a sender as its messages tell it, by user.
    var roles: [String: CallRole] = [:]

    func device(_ user: String, _ id: UInt64) -> Device {
        let device = Device(user, id)
        devices.append(device)
        return device
    }

    func key(_ user: String) -> CallKey { CallKey(Self.route ?? CallRoute("x").unsafelyUnwrapped, user) }

    func pass(_ milliseconds: Int64) {
        now.wall += milliseconds
        now.monotonic += milliseconds * 1_000_000
        for device in devices { perform(device.machine.tick(now), by: device) }
    }

    // MARK: Sending

    /// Sends, and returns the refusal.
    @discardableResult
    func send(
        _ content: CallMessage<String>.Content, from device: Device, to user: String, call: String = "call 1",
        as role: CallRole = .person, device recipient: Device? = nil
    ) -> CallRefusal? {
        do throws(CallRefusal) {
            let output = try device.machine.send(
                content, key(user), call: call, as: role, to: recipient?.id, now: now)
            post(output, from: device)
            return nil
        } catch {
            return error
        }
    }

    func end(_ state: String, by device: Device, call: String = "call 1") {
        post(device.machine.end(key("").route, call: call, state: state, now: now), from: device)
    }

    func post(_ output: [CallOutgoing<String>], from device: Device) {
        for outgoing in output {
            for recipient in devices where recipient.user.isSame(as: outgoing.user) && recipient !== device {
                guard outgoing.device == nil || outgoing.device == recipient.id else { continue }
                var message = outgoing.message
                message.role = roles[device.user]
                message.size = 100
                network.append(Transit(from: device, to: recipient, message: message))
            }
        }
    }

    // MARK: Delivering

    func deliverAll() { while !network.isEmpty { deliver(network.removeFirst()) } }

    func deliver(_ transit: Transit) {
        perform(
            transit.to.machine.receive(transit.message, from: transit.from.user, transit.from.id, now: now),
            by: transit.to)
    }

    func perform(_ actions: [CallAction<String>], by device: Device) {
        for action in actions {
            switch action {
            case .deliver(_, _, let message): device.log.append(Self.text(message.content))
            case .send(let outgoing): post([outgoing], from: device)
            case .ended(_, .byPeer(let state)): device.log.append("ended: \(state)")
            case .ended(_, .answeredElsewhere): device.log.append("answered elsewhere")
            case .ended(_, .endedElsewhere(let state)): device.log.append("ended elsewhere: \(state)")
            case .ended(_, .unanswered(let isOutgoing)):
                device.log.append(isOutgoing ? "nobody answers" : "missed")
            case .dropped(let reason): device.dropped.append(reason)
            }
        }
    }

    static func text(_ content: CallMessage<String>.Content) -> String {
        switch content {
        case .offer(let text): "offer \(text)"
        case .answer(let text, _): "answer \(text)"
        case .candidate(let text): "candidate \(text)"
        case .ciphertext(let text): "ciphertext \(text)"
        case .control(let text, _): "control \(text)"
        case .answered(let caller): "answered \(caller)"
        case .end(let state, _): "end \(state)"
        }
    }
}
