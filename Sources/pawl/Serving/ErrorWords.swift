// Descriptions of socket errors for operators.

import Foundation
import NIOCore
import NIOPosix
import TransportsService

/// Describes socket errors in words, without names of functions and types.
enum ErrorWords {
    static func text(_ error: any Error) -> String {
        switch error {
        case let error as IOError: String(cString: strerror(error.errnoCode))
        case let error as NIOConnectionError:
            if let failure = error.connectionErrors.first {
                "\(text(failure.error)) (\(error.host):\(error.port))"
            } else if error.dnsAError != nil || error.dnsAAAAError != nil {
                "the name \(error.host) is not known"
            } else {
                "no connection to \(error.host):\(error.port)"
            }
        case ChannelError.connectTimeout(let limit):
            "no answer within \(limit.nanoseconds / 1_000_000_000) seconds"
        case let error as TesseractError: error.reason
        case ChannelError.eof: "the connection was closed"
        default: "\(error)"
        }
    }
}
