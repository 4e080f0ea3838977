import Foundation
import Synchronization
import TransportsCore
import TransportsService

/// A processor for tests. A request is a word and a name: `echo x`, `hold x`, `fail x`, `big 100`.
///
/// A request that is held waits until the test releases its name, or until it is cancelled.
final class Workshop: Sendable {
    static let proto: ProtocolID = "test/1"

    private struct State {
        var started: [String: Once<Void>] = [:]
        var released: [String: Once<Bool>] = [:]
        var ended: [String: Once<Bool>] = [:]
        var count = 0
    }

    private let state = Mutex(State())
    /// The error of `fail`.
    let error: TesseractError

    init(error: TesseractError = .custom(code: 7, reason: "as told")) { self.error = error }

    /// How many requests were processed or begun.
    var count: Int { state.withLock { $0.count } }

    var processor: TransportProcessor {
        TransportProcessor(supports: { $0 == Self.proto }, process: { await self.process($0) })
    }

    private func process(_ data: Data) async -> Result<Data, TesseractError> {
        state.withLock { $0.count += 1 }
        let words = data.prefix(64).split(separator: UInt8(ascii: " "), maxSplits: 1)
        let name = words.count > 1 ? String(decoding: words[1], as: UTF8.self) : ""
        switch words.first.map({ String(decoding: $0, as: UTF8.self) }) {
        case "hold":
            started(name).fulfil(())
            let gate = released(name)
            let isReleased = await gate.value { gate.fulfil(false) }
            ended(name).fulfil(!isReleased)
            return isReleased ? .success(data) : .failure(.cancelled)
        case "deaf":
            started(name).fulfil(())
            let isReleased = await released(name).value()
            ended(name).fulfil(!isReleased)
            return .success(data)
        case "fail": return .failure(error)
        case "big": return .success(Data(repeating: 1, count: Int(name) ?? 0))
        default: return .success(data)
        }
    }

    private func started(_ name: String) -> Once<Void> {
        state.withLock { state in
            let once = state.started[name] ?? Once()
            state.started[name] = once
            return once
        }
    }

    private func released(_ name: String) -> Once<Bool> {
        state.withLock { state in
            let once = state.released[name] ?? Once()
            state.released[name] = once
            return once
        }
    }

    private func ended(_ name: String) -> Once<Bool> {
        state.withLock { state in
            let once = state.ended[name] ?? Once()
            state.ended[name] = once
            return once
        }
    }

    /// Waits until a held request has begun.
    func hasStarted(_ name: String) async { await started(name).value() }

    /// Lets a held request go on.
    func release(_ name: String) { released(name).fulfil(true) }

    /// Waits for the end of a held request: whether it was cancelled.
    func wasCancelled(_ name: String) async -> Bool { await ended(name).value() }
}
