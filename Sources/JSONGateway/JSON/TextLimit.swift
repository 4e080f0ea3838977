// The longest text of a backend. An envelope is longer than its text, so the gateway refuses what the backend would refuse,
// and names the length that fits.

import Envelope
import JSONCodec
import Vault

/// The longest value that the backend accepts where the envelope stands, in characters or bytes.
///
/// Envelopes are ASCII, so the unit makes no difference to them.
package enum TextLimit: Sendable, Equatable {
    case characters(Int)
    case bytes(Int)

    package var length: Int {
        switch self {
        case .characters(let length), .bytes(let length): length
        }
    }
}

extension MessageShape {
    /// The longest envelope that the backend accepts, in bytes; nil if the mapping names no limit.
    package var longestEnvelope: Int? {
        limit.map { Base64.decodedCapacity($0.length - (armour == nil ? 0 : Armour.wholeOverhead)) }
    }

    /// The longest text that fits beside other sealed values, in bytes of UTF-8; nil if the mapping names no limit.
    ///
    /// - Parameter others: the length of the sealed content without the text, in bytes.
    package func longestText(besides others: Int) -> Int? {
        guard let longest = longestEnvelope else { return nil }
        let capacity = min(longest - Vault.historyOverhead, Content.paddedLength(of: Content.maximumLength))
        var length = min(capacity, Content.maximumLength)
        while length > 0, Content.paddedLength(of: length) > capacity { length -= 1 }
        return max(0, length - others)
    }

    /// The longest text of a message that has no other sealed values, in bytes of UTF-8; nil without a limit.
    package var longestText: Int? {
        longestText(besides: JSONFragment.object([(text.text, .string(""))]).bytes.count)
    }
}

extension OutgoingMessage {
    /// The longest text that this message could have, in bytes of UTF-8; nil if the mapping names no limit.
    var longestText: Int? {
        guard found.shape.limit != nil, let content = try? plaintext(), let text = found.text else { return nil }
        // The quotes are not part of the text.
        return found.shape.longestText(besides: content.count - (document.range(text).count - 2))
    }
}
