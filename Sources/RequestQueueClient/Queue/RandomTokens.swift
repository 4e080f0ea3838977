// Tokens from the system's randomness, many at a time: a system call for each would cost more than accepting a request.

import Foundation
import RequestQueue
import Synchronization

/// Makes tokens.
final class RandomTokens: Sendable {
    /// Maximum of one call of `getentropy`, in bytes.
    private static let size = 256

    private struct State {
        var bytes = [UInt8](repeating: 0, count: size)
        var used = size
    }

    private let state = Mutex(State())

    func next() -> RequestToken {
        state.withLock { state in
            if state.used + 16 > Self.size {
                guard state.bytes.withUnsafeMutableBytes({ getentropy($0.baseAddress!, $0.count) }) == 0 else {
                    return RequestToken(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
                }
                state.used = 0
            }
            defer { state.used += 16 }
            return state.bytes.withUnsafeBytes { bytes in
                RequestToken(
                    high: bytes.loadUnaligned(fromByteOffset: state.used, as: UInt64.self),
                    low: bytes.loadUnaligned(fromByteOffset: state.used + 8, as: UInt64.self))
            }
        }
    }
}
