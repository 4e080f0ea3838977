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
    ///
    /// - Parameter links: the length of the links beside it.
    func longestEnvelope(besides links: Int = 0) -> Int? {
        self.limit.map {
            let others = (self.armour == nil ? 0 : Armour.wholeOverhead) + (self.envelope == nil ? links : 0)
            return Base64.decodedCapacity(max(0, $0.length - others))
        }
    }

    /// The longest text that fits beside other sealed values, in bytes of UTF-8; nil if the mapping names no limit.
    ///
    /// - Parameters:
    ///   - others: the length of the sealed content without the text, in bytes.
    ///   - links: the length of the links beside the envelope.
    package func longestText(besides others: Int, links: Int = 0) -> Int? {
        guard let longest = longestEnvelope(besides: links) else { return nil }
        let capacity = min(longest - Vault.historyOverhead, Content.paddedLength(of: Content.maximumLength))
        var length = min(capacity, Content.maximumLength)
        while length > 0, Content.paddedLength(of: length) > capacity { length -= 1 }
        return max(0, length - others)
    }

    /// The longest text of a message that has no other sealed values, in bytes of UTF-8; nil without a limit.
    package var longestText: Int? {
        longestText(besides: JSONFragment.object([(self.text.text, .string(""))]).bytes.count)
    }
}

extension OutgoingMessage {
    /// The longest text that this message could have, in bytes of UTF-8; nil if the mapping names no limit.
    var longestText: Int? {
        guard found.shape.limit != nil, let content = try? plaintext(), let text = found.text else { return nil }
        // The quotes are not part of the text.
        return found.shape.longestText(besides: content.count - (document.range(text).count - 2), links: linkLength)
    }

    /// The longest envelope that the backend accepts in this message, in bytes; nil if the mapping names no limit.
    package var longestEnvelope: Int? { found.shape.longestEnvelope(besides: linkLength) }

    /// The length of the links that stand beside the envelope.
    private var linkLength: Int { found.links(in: document)?.utf8.count ?? 0 }
}
